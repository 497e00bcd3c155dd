// Frames as LLVM makes them (the record of x29 and x30 at the upper end of the frame, or below saved registers), without and with a signed return address, and some that
// only people write. `assembly` calls them all.

    .text
    .globl  assembly
    .type   assembly, %function
assembly:
    .cfi_startproc
    stp     x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    .cfi_offset w29, -32
    .cfi_offset w30, -24
    str     x19, [sp, #16]
    .cfi_offset w19, -16
    mov     x0, #5
    bl      llvm_small
    bl      llvm_signed
    bl      llvm_large
    bl      llvm_large_signed
    bl      without_frame_pointer
    bl      very_large_without_frame_pointer
    bl      frame_pointer_alone
    bl      frame_pointer_lost
    bl      distant
    ldr     x19, [sp, #16]
    ldp     x29, x30, [sp], #32
    .cfi_def_cfa_offset 0
    .cfi_restore w19
    .cfi_restore w29
    .cfi_restore w30
    ret
    .cfi_endproc
    .size   assembly, . - assembly

    .type   looked_at, %function
looked_at:
    .cfi_startproc
    add     x0, x0, #1
    ret
    .cfi_endproc
    .size   looked_at, . - looked_at

    .type   llvm_small, %function
llvm_small:
    .cfi_startproc
    sub     sp, sp, #80
    .cfi_def_cfa_offset 80
    stp     x29, x30, [sp, #48]
    str     x19, [sp, #64]
    add     x29, sp, #48
    .cfi_def_cfa w29, 32
    .cfi_offset w19, -16
    .cfi_offset w30, -24
    .cfi_offset w29, -32
    mov     x19, x0
    bl      looked_at
    .cfi_def_cfa wsp, 80
    ldp     x29, x30, [sp, #48]
    ldr     x19, [sp, #64]
    add     sp, sp, #80
    .cfi_def_cfa_offset 0
    .cfi_restore w19
    .cfi_restore w30
    .cfi_restore w29
    ret
    .cfi_endproc
    .size   llvm_small, . - llvm_small

    .type   llvm_signed, %function
llvm_signed:
    .cfi_startproc
    .cfi_b_key_frame
    hint    #27
    .cfi_negate_ra_state
    sub     sp, sp, #80
    .cfi_def_cfa_offset 80
    stp     x29, x30, [sp, #48]
    str     x19, [sp, #64]
    add     x29, sp, #48
    .cfi_def_cfa w29, 32
    .cfi_offset w19, -16
    .cfi_offset w30, -24
    .cfi_offset w29, -32
    mov     x19, x0
    bl      looked_at
    .cfi_def_cfa wsp, 80
    ldp     x29, x30, [sp, #48]
    ldr     x19, [sp, #64]
    add     sp, sp, #80
    .cfi_def_cfa_offset 0
    .cfi_restore w19
    .cfi_restore w30
    .cfi_restore w29
    hint    #31
    .cfi_negate_ra_state
    ret
    .cfi_endproc
    .size   llvm_signed, . - llvm_signed

    .type   llvm_large, %function
llvm_large:
    .cfi_startproc
    stp     x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    stp     x28, x19, [sp, #16]
    mov     x29, sp
    .cfi_def_cfa w29, 32
    .cfi_offset w19, -8
    .cfi_offset w28, -16
    .cfi_offset w30, -24
    .cfi_offset w29, -32
    sub     x9, sp, #97, lsl #12
1:
    sub     sp, sp, #1, lsl #12
    cmp     sp, x9
    str     xzr, [sp]
    b.ne    1b
    sub     sp, sp, #2688
    bl      looked_at
    add     sp, sp, #97, lsl #12
    add     sp, sp, #2688
    .cfi_def_cfa wsp, 32
    ldp     x28, x19, [sp, #16]
    ldp     x29, x30, [sp], #32
    .cfi_def_cfa_offset 0
    .cfi_restore w19
    .cfi_restore w28
    .cfi_restore w30
    .cfi_restore w29
    ret
    .cfi_endproc
    .size   llvm_large, . - llvm_large

    .type   llvm_large_signed, %function
llvm_large_signed:
    .cfi_startproc
    hint    #25
    .cfi_negate_ra_state
    stp     x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    stp     x28, x19, [sp, #16]
    mov     x29, sp
    .cfi_def_cfa w29, 32
    .cfi_offset w19, -8
    .cfi_offset w28, -16
    .cfi_offset w30, -24
    .cfi_offset w29, -32
    sub     sp, sp, #732, lsl #12
    sub     sp, sp, #1728
    bl      looked_at
    add     sp, sp, #732, lsl #12
    add     sp, sp, #1728
    .cfi_def_cfa wsp, 32
    ldp     x28, x19, [sp, #16]
    ldp     x29, x30, [sp], #32
    .cfi_def_cfa_offset 0
    .cfi_restore w19
    .cfi_restore w28
    .cfi_restore w30
    .cfi_restore w29
    hint    #29
    .cfi_negate_ra_state
    ret
    .cfi_endproc
    .size   llvm_large_signed, . - llvm_large_signed

    .type   without_frame_pointer, %function
without_frame_pointer:
    .cfi_startproc
    str     x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    stp     x20, x19, [sp, #16]
    .cfi_offset w19, -8
    .cfi_offset w20, -16
    .cfi_offset w30, -32
    sub     sp, sp, #97, lsl #12
    .cfi_def_cfa_offset 397344
    bl      looked_at
    add     sp, sp, #97, lsl #12
    .cfi_def_cfa_offset 32
    ldp     x20, x19, [sp, #16]
    ldr     x30, [sp], #32
    .cfi_def_cfa_offset 0
    .cfi_restore w19
    .cfi_restore w20
    .cfi_restore w30
    ret
    .cfi_endproc
    .size   without_frame_pointer, . - without_frame_pointer

    .type   very_large_without_frame_pointer, %function
very_large_without_frame_pointer:
    .cfi_startproc
    stp     x29, x30, [sp, #-16]!
    .cfi_def_cfa_offset 16
    .cfi_offset w30, -8
    .cfi_offset w29, -16
    sub     sp, sp, #732, lsl #12
    .cfi_def_cfa_offset 2998288
    mov     x29, #0
    bl      looked_at
    add     sp, sp, #732, lsl #12
    .cfi_def_cfa_offset 16
    ldp     x29, x30, [sp], #16
    .cfi_def_cfa_offset 0
    .cfi_restore w30
    .cfi_restore w29
    ret
    .cfi_endproc
    .size   very_large_without_frame_pointer, . - very_large_without_frame_pointer

    // A leaf that needs x29 as one more register.
    .type   frame_pointer_alone, %function
frame_pointer_alone:
    .cfi_startproc
    str     x29, [sp, #-16]!
    .cfi_def_cfa_offset 16
    .cfi_offset w29, -16
    mov     x29, x0
    add     x0, x29, #1
    ldr     x29, [sp], #16
    .cfi_def_cfa_offset 0
    .cfi_restore w29
    ret
    .cfi_endproc
    .size   frame_pointer_alone, . - frame_pointer_alone

    // Says that the caller's x29 is lost: nobody's frame is counted from it here.
    .type   frame_pointer_lost, %function
frame_pointer_lost:
    .cfi_startproc
    str     x30, [sp, #-16]!
    .cfi_def_cfa_offset 16
    .cfi_offset w30, -16
    .cfi_undefined w29
    bl      looked_at
    ldr     x30, [sp], #16
    .cfi_def_cfa_offset 0
    .cfi_restore w30
    ret
    .cfi_endproc
    .size   frame_pointer_lost, . - frame_pointer_lost

    // So far away that the linker puts a jump in between.
    .section .distant, "ax", %progbits
    .type   distant, %function
distant:
    .cfi_startproc
    stp     x29, x30, [sp, #-16]!
    .cfi_def_cfa_offset 16
    .cfi_offset w29, -16
    .cfi_offset w30, -8
    bl      looked_at
    ldp     x29, x30, [sp], #16
    .cfi_def_cfa_offset 0
    .cfi_restore w29
    .cfi_restore w30
    ret
    .cfi_endproc
    .size   distant, . - distant

    .section .note.GNU-stack, "", %progbits
