# shellcheck shell=bash
# Sourced by test scripts: each check prints `ok NAME` or `not ok NAME`, which .ci/run counts; `finish` ends the script.

tap_failed=0
tap_count=0

# check NAME COMMAND…: passes when the command does. Its output is shown only when it fails.
check() {
    local name=$1 output code
    shift
    output=$("$@" 2>&1) && code=0 || code=$?
    tap_count=$((tap_count + 1))
    if [ "$code" -eq 0 ]; then
        echo "ok $name"
    else
        echo "not ok $name"
        printf '%s\n' "exit code $code of: $*" "$output" | sed 's/^/#   /'
        tap_failed=$((tap_failed + 1))
    fi
}

# exits CODE PATTERN COMMAND…: the command ends with CODE and its output matches the extended regular expression.
exits() {
    local want=$1 pattern=$2 output code
    shift 2
    output=$("$@" 2>&1) && code=0 || code=$?
    printf '%s\n' "$output"
    [ "$code" -eq "$want" ] && printf '%s\n' "$output" | grep -Eq -- "$pattern"
}

finish() {
    echo "1..$tap_count"
    [ "$tap_failed" -eq 0 ] && [ "$tap_count" -gt 0 ]
}

# Debian's Open MPI on one machine, for the checks of the example programs alone.
plain_mpirun() {
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1 \
        OMPI_MCA_btl_base_warn_component_unused=0 mpirun.openmpi --oversubscribe "$@"
}
