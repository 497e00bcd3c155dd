/* A library with thread-local variables: the dynamic linker notes each such library for every thread. */
__thread int variable[1024] = {1};
int *address_of_variable(void) { return variable; }
