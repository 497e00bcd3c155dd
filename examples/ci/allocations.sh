#!/usr/bin/env bash
# What a pull request allocates more: builds two commits, records the same command of both, compares.
#
#   examples/ci/allocations.sh BASE HEAD -- COMMAND...
#
# COMMAND runs in the root of each commit's tree, after BUILD. Settings, by environment:
#   BUILD    how to build a tree           (cargo build --release)
#   LIMITS   arguments of profrec diff     (--fail-on allocs=+0)
#   OUT      where the results go          (./allocations)
#   NAME     name in the comment's marker  (allocations)
#   PROFREC  the executable                (profrec)
#
# OUT gets base.pb.gz, head.pb.gz, comment.md, report.json and report.html.
# Exit code: 0 within the limits, 3 beyond one, anything else: no result.
set -euo pipefail

if [ $# -lt 4 ] || [ "$3" != -- ]; then
  echo "usage: $0 BASE HEAD -- COMMAND..." >&2
  exit 2
fi
base=$1 head=$2
shift 3
out=$(mkdir -p "${OUT:-allocations}" && cd "${OUT:-allocations}" && pwd)
profrec=${PROFREC:-profrec}

# Lines in a release build, without a change of its code.
export CARGO_PROFILE_RELEASE_DEBUG=${CARGO_PROFILE_RELEASE_DEBUG:-line-tables-only}

trees=$(mktemp -d)
cleanup() {
  git worktree remove --force "$trees/base" 2>/dev/null || true
  git worktree remove --force "$trees/head" 2>/dev/null || true
  rm -rf "$trees"
}
trap cleanup EXIT

record() { # SIDE COMMIT COMMAND...
  local side=$1 commit=$2
  shift 2
  git worktree add --quiet --detach "$trees/$side" "$commit"
  (
    cd "$trees/$side"
    # Neither the build nor the program can be told from a failed limit by an exit code of 3.
    bash -c "${BUILD:-cargo build --release}" >&2 || { echo "error: the build of $side ($commit) failed" >&2; exit 1; }
    "$profrec" record --quiet --mode allocs -o "$out/$side.pb.gz" -- "$@" >&2 || {
      echo "error: the command failed on $side ($commit)" >&2
      exit 1
    }
  )
}
record base "$base" "$@"
record head "$head" "$@"

# In the head's tree, so that files are named by their paths in it.
cd "$trees/head"
read -r -a limits <<<"${LIMITS:---fail-on allocs=+0}"
"$profrec" diff "$out/base.pb.gz" "$out/head.pb.gz" --name "${NAME:-allocations}" "${limits[@]}" \
  -o "$out/comment.md" -o "$out/report.json" -o "$out/report.html"
