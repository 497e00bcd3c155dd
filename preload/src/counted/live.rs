//! Live bytes of the process, where they are accounted for: what the few instructions add and take off. In terms of the macros of the module above, where each is expanded.
//!
//! As `capture::live`: a thread's most is looked at when something is given back, and each change is one instruction.

/// The bytes that glibc gave to `$block`, into `rcx`, as `fast::chunk_bytes` computes them; goes to `$mapped` for a block of a mapping of its own.
macro_rules! chunk_bytes {
    ($block:literal, $mapped:literal) => {
        concat!(
            "mov rcx, qword ptr [",
            $block,
            " - 8]\n",
            "test cl, 2\n",
            "jne ",
            $mapped,
            "\n",
            "and rcx, -8\n",
            "sub rcx, 8\n"
        )
    };
}

/// Calls `$function`, from where the stack is as the host left it; what is in `$saved` is in `$to` after that.
macro_rules! call {
    ($function:literal, $saved:literal) => {
        call!($function, $saved, $saved)
    };
    ($function:literal, $saved:literal, $to:literal) => {
        concat!(
            "push ",
            $saved,
            "\n.cfi_adjust_cfa_offset 8\n",
            "call ",
            $function,
            "\npop ",
            $to,
            "\n.cfi_adjust_cfa_offset -8\n"
        )
    };
}

/// Counts a call that asked for the bytes in `$size`, calls the next function, and adds the block's bytes to what is live.
macro_rules! allocate_chunk {
    ($size:literal, $wanted:literal) => {
        concat!(
            count!($size, $wanted),
            call!("qword ptr [rip + {near} + {next}]", "rax", "rdx"),
            "test rax, rax\n",
            "je 5f\n",
            grown!($wanted),
        )
    };
}

/// Adds the bytes of the block at `rax`, less what `$less` takes off, to what is live, by the record in `rdx`, and returns.
macro_rules! grown {
    ($wanted:literal $(, $less:literal)*) => {
        concat!(
            chunk_bytes!("rax", "6f"),
            "7:\n",
            $($less,)*
            grow!($wanted),
            "6:\n",
            "and rcx, -8\n",
            "sub rcx, 16\n",
            "jmp 7b\n",
        )
    };
}

/// The same by the block's bytes, in `rcx`, as `capture::live::grow`; at 5, it returns.
macro_rules! grow {
    ($wanted:literal) => {
        concat!(
            on!("sub", "rdx", "{live_below_max}", $wanted, "rcx"),
            "js 8f\n",
            "5:\n",
            "ret\n",
            "8:\n",
            call!("{bring_in}", "rax"),
            "ret\n",
        )
    };
}

/// As [`allocate_chunk!`]; the block's allocator is asked for its bytes.
macro_rules! allocate_sized {
    ($size:literal, $wanted:literal) => {
        concat!(
            count!($size, $wanted),
            "sub rsp, 24\n",
            ".cfi_adjust_cfa_offset 24\n",
            "mov qword ptr [rsp], rax\n",
            "call qword ptr [rip + {near} + {next}]\n",
            "mov qword ptr [rsp + 8], rax\n",
            "test rax, rax\n",
            "je 4f\n",
            "mov rdi, rax\n",
            "call qword ptr [rip + {near} + {size_of}]\n",
            "4:\n",
            "mov rcx, rax\n",
            "mov rdx, qword ptr [rsp]\n",
            "mov rax, qword ptr [rsp + 8]\n",
            "add rsp, 24\n",
            ".cfi_adjust_cfa_offset -24\n",
            // No block, no bytes.
            grow!($wanted),
        )
    };
}

/// Takes the bytes of the block at `rdi` off what is live, counts the call, and leaves.
macro_rules! free_chunk {
    ($wanted:literal) => {
        concat!("test rdi, rdi\n", "je 3f\n", chunk_bytes!("rdi", "3f"), count_free!($wanted), shrink!($wanted),)
    };
}

/// The same; the block's allocator is asked for its bytes.
macro_rules! free_sized {
    ($wanted:literal) => {
        concat!(
            "test rdi, rdi\n",
            "je 3f\n",
            count_free!($wanted),
            "sub rsp, 24\n",
            ".cfi_adjust_cfa_offset 24\n",
            "mov qword ptr [rsp], rax\n",
            "mov qword ptr [rsp + 8], rdi\n",
            "call qword ptr [rip + {near} + {size_of}]\n",
            "mov rcx, rax\n",
            "mov rax, qword ptr [rsp]\n",
            "mov rdi, qword ptr [rsp + 8]\n",
            "add rsp, 24\n",
            ".cfi_adjust_cfa_offset -24\n",
            shrink!($wanted),
        )
    };
}

/// Takes the bytes in `rcx` off what is live, as `capture::live::shrink`, and leaves. The sum is computed twice: to load what was just stored takes longer.
macro_rules! shrink {
    ($wanted:literal) => {
        concat!(
            load!("rdx", "rax", "{live_below_max}", $wanted),
            "sub rdx, {grain}\n",
            "jl 8f\n",
            "add rdx, rcx\n",
            on!("add", "rax", "{live_below_max}", $wanted, "rcx"),
            "cmp rdx, {grain}\n",
            "jge 7f\n",
            leave!(),
            // They are more than ever.
            "8:\n",
            on!("sub", "rax", "{live_below_max}", $wanted, "rdx"),
            on!("sub", "rax", "{live_max}", $wanted, "rdx"),
            on!("add", "rax", "{live_below_max}", $wanted, "rcx"),
            on!("cmp", "rax", "{live_max}", $wanted, "2 * {grain}"),
            "jge 7f\n",
            on!("cmp", "rax", "{live_below_max}", $wanted, "2 * {grain}"),
            "jge 7f\n",
            leave!(),
            "7:\n",
            call!("{bring_in}", "rdi"),
            leave!(),
        )
    };
}
