# Which recorders there are, what each is compared with, and how each runs a program. Read by `peers`.

as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo)

# The first of these files that exists, or nothing.
first_file() {
  local file
  for file in "$@"; do
    if [ -e "$file" ]; then echo "$file"; return; fi
  done
}

find_peers() {
  heaptrack=$(first_file /usr/lib/heaptrack/libheaptrack_preload.so /usr/lib/*/heaptrack/libheaptrack_preload.so)
  jemalloc=$(first_file /usr/lib/*/libjemalloc.so.2)
  tcmalloc=$(first_file /usr/lib/*/libtcmalloc.so.4)
  valgrind=$(command -v valgrind || true)
}

install_peers() {
  "${as_root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends \
    heaptrack libjemalloc2 libgoogle-perftools4 valgrind redis-server redis-tools >/dev/null
}

say_what_is_missing() {
  [ -n "$heaptrack" ] || echo "heaptrack is not installed (--install): left out"
  [ -n "$jemalloc" ] || echo "libjemalloc2 is not installed (--install): left out"
  [ -n "$tcmalloc" ] || echo "libgoogle-perftools4 is not installed (--install): left out"
  [ -z "$slow" ] || [ -n "$valgrind" ] || echo "valgrind is not installed (--install): left out"
}

# The recorders that a workload is run under, to the array `recorders`; each behind what it is compared with.
recorders_of() {
  local workload=$1
  recorders=(none stat sampled allocs heap)
  [ "$workload" = redis ] || recorders+=(cpu)
  [ -z "$heaptrack" ] || recorders+=(heaptrack)
  if [ -n "$jemalloc" ]; then
    # redis uses that library anyway.
    [ "$workload" = redis ] || recorders+=(jemalloc)
    recorders+=(jemalloc-19)
    [ -z "$slow" ] || recorders+=(jemalloc-0)
  fi
  if [ -n "$tcmalloc" ] && [ "$workload" != redis ]; then
    recorders+=(tcmalloc tcmalloc-512K)
    [ -z "$slow" ] || recorders+=(tcmalloc-profile)
  fi
  [ -z "$slow" ] || [ -z "$valgrind" ] || [ "$workload" = redis ] || recorders+=(valgrind-dhat)
  if [ "$workload" = json ]; then
    recorders+=(crate-off threaded crate-sampled crate-allocs crate-heap crate-dhat crate-jemalloc crate-jemalloc-19)
    [ -z "$slow" ] || recorders+=(crate-jemalloc-0)
  fi
}

base_of() {
  case $1 in
    jemalloc-*) if [[ " ${recorders[*]} " == *" jemalloc "* ]]; then echo jemalloc; else echo none; fi ;;
    tcmalloc-*) echo tcmalloc ;;
    crate-jemalloc-*) echo crate-jemalloc ;;
    crate-sampled | crate-allocs | crate-heap) echo threaded ;;
    *) echo none ;;
  esac
}

name_of() {
  case $1 in
    none) echo plain ;;
    threaded) echo 'plain, a second thread' ;;
    stat) echo 'profrec stat' ;;
    sampled) echo 'profrec record heap, 512K' ;;
    allocs | heap | cpu) echo "profrec record $1" ;;
    heaptrack) echo 'heaptrack (raw)' ;;
    jemalloc-19 | jemalloc-0) echo "jemalloc, lg_prof_sample ${1#*-}" ;;
    tcmalloc-512K) echo 'tcmalloc, samples 512K' ;;
    tcmalloc-profile) echo 'tcmalloc, HEAPPROFILE' ;;
    valgrind-dhat) echo 'valgrind dhat' ;;
    crate-off) echo 'wrapper, no session' ;;
    crate-sampled | crate-allocs | crate-heap) echo "wrapper, ${1#crate-}" ;;
    crate-dhat) echo 'crate dhat' ;;
    crate-jemalloc) echo 'crate jemalloc' ;;
    crate-jemalloc-*) echo "crate jemalloc, lg ${1##*-}" ;;
    *) echo "$1" ;;
  esac
}

# The most that the time of the recorder may be, in times of the plain run; nothing if nothing was promised.
goal_of() {
  case ${1#crate-} in
    sampled) echo 1.02 ;;
    allocs) case $2 in json) echo 1.60 ;; python) echo 1.80 ;; gcc) echo 1.25 ;; redis) echo 1.45 ;; esac ;;
    # Twice the added time of `allocs`.
    heap) case $2 in json) echo 2.20 ;; python) echo 2.60 ;; gcc) echo 1.50 ;; redis) echo 1.90 ;; esac ;;
  esac
}

# What stands in front of a program to record it, to the array `prefix`.
prefix_of() {
  local output=$directory/output
  rm -rf "$output"
  mkdir "$output"
  local record=("$profrec" record --quiet --symbols none -o "$output/x.collapsed")
  case $1 in
    none | threaded) prefix=() ;;
    stat) prefix=("$profrec" stat -o "$output/stat" --) ;;
    sampled) prefix=("${record[@]}" --mode heap --interval 512KiB --) ;;
    allocs | heap | cpu) prefix=("${record[@]}" --mode "$1" --) ;;
    heaptrack) prefix=(env LD_PRELOAD="$heaptrack" DUMP_HEAPTRACK_OUTPUT="$output/heaptrack") ;;
    jemalloc) prefix=(env LD_PRELOAD="$jemalloc") ;;
    jemalloc-*) prefix=(env LD_PRELOAD="$jemalloc" MALLOC_CONF="prof:true,prof_final:true,prof_prefix:$output/jeprof,lg_prof_sample:${1#*-}") ;;
    tcmalloc) prefix=(env LD_PRELOAD="$tcmalloc") ;;
    tcmalloc-512K) prefix=(env LD_PRELOAD="$tcmalloc" TCMALLOC_SAMPLE_PARAMETER=524288) ;;
    tcmalloc-profile) prefix=(env LD_PRELOAD="$tcmalloc" HEAPPROFILE="$output/heap") ;;
    valgrind-dhat) prefix=("$valgrind" --tool=dhat --quiet --dhat-out-file="$output/dhat") ;;
    crate-dhat) prefix=(env DHAT_FILE="$output/dhat") ;;
    crate-jemalloc) prefix=() ;;
    crate-jemalloc-*) prefix=(env _RJEM_MALLOC_CONF="prof:true,prof_final:true,prof_prefix:$output/jeprof,lg_prof_sample:${1##*-}") ;;
    crate-*) prefix=(env RECORDING="${1#crate-}" RECORDING_SOCKET="$output/s" XDG_RUNTIME_DIR="$output") ;;
  esac
}

# Whether the recorder is a process of its own, beside the program.
has_process() { case $1 in stat | sampled | allocs | heap | cpu) true ;; *) false ;; esac; }
