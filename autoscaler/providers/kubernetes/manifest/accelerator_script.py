"""The check of the accelerators in a job's own pod, as a script for any image with a POSIX shell. Pure.

The job's image need not have Python, so the agent cannot run there. GitHub's hooks need `sh`, `cat` and `tar`
there anyway. The script compares what the agent compares (`nvidia.py` and `rocm.py` of `agent/checks`): the
number, models, memory and driver of the accelerators, and NVIDIA's count of uncorrectable errors. It does not
look at temperatures, NVLinks and pending repairs.
"""

from autoscaler.config.settings.sku import Accelerator

_BEGIN = """\
wanted=$1 driver=$2 memory=$3
shift 3
fail() {
    # Kubelet shows the first in the pod's status. The second is the log of the container.
    { echo "accelerators: $*" > /dev/termination-log; } 2> /dev/null
    { echo "accelerators: $*" > /proc/1/fd/1; } 2> /dev/null
    echo "accelerators: $*" >&2
    exit 1
}
check_driver() {
    case $1 in
        "$driver" | "$driver".*) ;;
        *) [ -z "$driver" ] || fail "driver ${1:-unknown}, and $driver is wanted" ;;
    esac
}
"""

_MODEL = """\
    model=`echo "$name" | tr '[:upper:]' '[:lower:]'`
    known=$#
    for one in "$@"; do
        [ "$one" != "$model" ] || known=0
    done
    [ "$known" -eq 0 ] || fail "GPU $gpus is $name, which is not a wanted model"
"""

# 14: the infoROM is corrupted, and the GPU works (nvidia-smi(1)). GKE has the programs below /usr/local/nvidia.
_NVIDIA = (
    """\
PATH=$PATH:/usr/local/nvidia/bin
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/nvidia/lib64"
ask() {
    answer=`nvidia-smi "$@" 2>&1`
    status=$?
    case $status in
        0 | 14) ;;
        *) fail "nvidia-smi $1 exited with $status: $answer" ;;
    esac
}
ask -L
listed=0 parts=0
while read -r line; do
    case $line in
        "GPU "[0-9]*": "*"(UUID: "*) listed=$((listed + 1)) ;;
        "MIG "*"(UUID: "*) parts=$((parts + 1)) ;;
    esac
done <<END
$answer
END
found=$listed
[ "$parts" -eq 0 ] || found=$parts
[ "$found" -eq "$wanted" ] || fail "$found found, and $wanted wanted"
fields=driver_version,memory.total,ecc.errors.uncorrected.volatile.total,name
ask "--query-gpu=$fields" --format=csv,noheader,nounits
gpus=0
while IFS=, read -r version mib errors name; do
    mib=${mib# } errors=${errors# } name=${name# }
    case $name in
        "" | "["* | *"is lost"* | "Unknown Error" | "ERR!") fail "GPU $gpus does not answer: $answer" ;;
    esac
    check_driver "$version"
    case $errors in
        0 | *[!0-9]* | "") ;;
        *) fail "GPU $gpus has $errors uncorrectable ECC errors" ;;
    esac
    # A MIG device has less than its GPU.
    if [ "$memory" -gt 0 ] && [ "$parts" -eq 0 ]; then
        [ "$mib" -ge $((memory * 1024)) ] 2> /dev/null ||
            fail "GPU $gpus has $mib MiB, and $memory GiB are wanted"
    fi
"""
    + _MODEL
    + """\
    gpus=$((gpus + 1))
done <<END
$answer
END
[ "$gpus" -eq "$listed" ] || fail "$gpus of $listed GPUs answer: $answer"
"""
)

# A container cannot read the properties of other containers' GPUs (kfd_topology.c).
_AMD = (
    """\
for device in /dev/kfd /dev/dri/renderD*; do
    [ -r "$device" ] && [ -w "$device" ] || fail "this user may not open $device"
done
version=
{ read -r version < /sys/module/amdgpu/version; } 2> /dev/null
check_driver "$version"
gpus=0
for node in /sys/class/kfd/kfd/topology/nodes/*; do
    target=0
    while read -r key value; do
        [ "$key" != gfx_target_version ] || target=$value
    done 2> /dev/null < "$node/properties"
    [ "$target" -gt 0 ] || continue
    name=`printf 'gfx%d%x%x' $((target / 10000)) $((target / 100 % 100)) $((target % 100))`
"""
    + _MODEL
    + """\
    bytes=0
    for bank in "$node"/mem_banks/*/properties; do
        heap=0 size=0
        while read -r key value; do
            case $key in
                heap_type) heap=$value ;;
                size_in_bytes) size=$value ;;
            esac
        done 2> /dev/null < "$bank"
        case $heap in 1 | 2) bytes=$((bytes + size)) ;; esac
    done
    [ "$bytes" -ge $((memory * 1073741824)) ] ||
        fail "GPU $gpus has $bytes bytes, and $memory GiB are wanted"
    gpus=$((gpus + 1))
done
[ "$gpus" -eq "$wanted" ] || fail "$gpus found, and $wanted wanted"
"""
)

_SCRIPTS = {"nvidia": _BEGIN + _NVIDIA, "amd": _BEGIN + _AMD}


def check_command(count: int, wanted: Accelerator) -> list[str]:
    """Return the command, which ends with status 0 if the container has exactly these accelerators."""
    models = [model.lower() for model in wanted.models or ()]
    settings = [str(count), wanted.driver_version or "", str(wanted.memory_gb or 0), *models]
    return ["sh", "-c", _SCRIPTS[wanted.vendor], "sh", *settings]
