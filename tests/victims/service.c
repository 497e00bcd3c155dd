/* Executes a program as a service manager starts it that lets services make the usual system calls: what only debuggers do ends the process, and what only those do that share the machine out. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define END(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

int main(int argc, char **argv) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      END(ptrace), END(pidfd_getfd), END(perf_event_open), END(process_vm_writev),
      END(setpriority), END(sched_setscheduler), END(sched_setattr), END(sched_setparam), END(sched_setaffinity), END(ioprio_set),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  if (argc < 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) return 2;
  execvp(argv[1], argv + 1);
  return 3;
}
