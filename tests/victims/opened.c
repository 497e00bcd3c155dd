/* A library with one function, in whose code the address after a call of malloc has a name. */
__attribute__((visibility("hidden"))) extern char __ehdr_start[], _end[];
char *start_of_library = __ehdr_start, *end_of_library = _end;

void enters(long);
__asm__(".text\n.globl enters, called_from\n.type enters, @function\n.type called_from, @function\nenters:\n.cfi_startproc\n"
        "sub $24, %rsp\n.cfi_adjust_cfa_offset 24\nmov $33, %edi\ncall malloc@plt\ncalled_from:\nmov %rax, %rdi\ncall free@plt\n"
        "add $24, %rsp\n.cfi_adjust_cfa_offset -24\nret\n.cfi_endproc\n.size enters, . - enters\n");
