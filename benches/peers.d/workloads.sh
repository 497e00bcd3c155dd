# The programs that are recorded. `WORKLOAD_workload` sets the array `command`. Read by `peers`.

python_workload() {
  local python times=90
  python=$(python3 -c 'import sys; print(sys.executable)')
  [ -z "$quick" ] || times=3
  cat >"$directory/workload.py" <<TEXT
import json
for _ in range($times):
    rows = [{"id": k, "name": "name %d" % k, "tags": ["a", "b", str(k)], "value": k * 0.5} for k in range(2000)]
    assert json.loads(json.dumps(rows)) == rows
TEXT
  # In the environment of everything: a program `env` in between would be what heaptrack records.
  export PYTHONMALLOC=malloc
  command=("$python" -S "$directory/workload.py")
}

gcc_workload() {
  local include=()
  if [ -n "$quick" ] && [ -z "$c_file" ]; then
    c_file=$repository/tests/src/counter.c
  elif [ -z "$c_file" ]; then
    # A real and large file of C that everybody with cargo can have: zstd's compressor.
    local fetched=$target/peers
    if [ ! -d "$fetched/vendor" ]; then
      mkdir -p "$fetched"
      printf '[package]\nname = "peers"\nedition = "2024"\n[lib]\npath = "lib.rs"\n[workspace]\n[dependencies]\nzstd-sys = "=2.0.16"\n' >"$fetched/Cargo.toml"
      touch "$fetched/lib.rs"
      (cd "$fetched" && cargo vendor --quiet >/dev/null)
    fi
    c_file=$fetched/vendor/zstd-sys/zstd/lib/compress/zstd_compress.c
    include=(-I "$fetched/vendor/zstd-sys/zstd/lib")
  fi
  gcc -E "${include[@]}" "$c_file" -o "$directory/file.i"
  # The compiler proper: the driver `gcc` only starts it, and heaptrack does not follow.
  command=("$(gcc -print-prog-name=cc1)" -quiet -fpreprocessed -O2 "$directory/file.i" -o /dev/null)
}

# A Rust program, and what compiles in: `crate-*` are variants of it.
json_workload() {
  local times=100
  [ -z "$quick" ] || times=1
  (cd "$repository/benches/json" && cargo build --release --quiet --target-dir "$target/peers")
  # Whether glibc gives the top of its heap back to the kernel between two documents, and gets it anew, depends on where a few blocks came to lie: a fifth of the time, by chance.
  export MALLOC_TRIM_THRESHOLD_=$((1 << 30))
  command=("$target/peers/release/plain" "$times")
}

# The program that a recorder is compiled into, if it is.
variant() {
  case $1 in
    threaded) command[0]=$target/peers/release/threaded ;;
    crate-dhat) command[0]=$target/peers/release/dhat ;;
    crate-jemalloc*) command[0]=$target/peers/release/jemalloc ;;
    crate-*) command[0]=$target/peers/release/recording ;;
  esac
}

redis_workload() {
  command=(redis-server --port 0 --unixsocket "$directory/redis" --save '' --appendonly no --daemonize no --loglevel warning)
}

# Starts the server behind `prefix`, lets it work, and prints its CPU time in milliseconds.
served() {
  local requests=300000 pid
  [ -z "$quick" ] || requests=10000
  rm -f "$directory/redis"
  "$@" "${command[@]}" >"$directory/redis.log" 2>&1 &
  local started=$!
  for ((try = 0; try < 200; try++)); do
    [ "$(redis-cli -s "$directory/redis" ping 2>/dev/null || true)" != PONG ] || break
    sleep 0.1
  done
  pid=$(redis-cli -s "$directory/redis" info server | tr -d '\r' | sed -n 's/^process_id://p')
  redis-benchmark -s "$directory/redis" -n "$requests" -r 100000 -t set,lpush -P 16 -d 100 -q >/dev/null
  # The process's CPU clock (clock_getcpuclockid(3)): /proc tells hundredths of a second.
  python3 -c "import time; print(time.clock_gettime((~$pid << 3) | 2) * 1000)"
  redis-cli -s "$directory/redis" shutdown nosave >/dev/null 2>&1 || true
  wait "$started" || { cat "$directory/redis.log" >&2; return 1; }
}
