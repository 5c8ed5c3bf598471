# shellcheck shell=bash disable=SC2034 # the step `driver` reads the variables
# AMD's driver, for the step `driver` and for the image's own test: `set_up_driver` runs after the agent has
# installed it, DRIVER_UNITS start at boot, and `show_driver` prints the release of the driver.

DRIVER_RECIPE=linux-rocm
# udev loads the kernel module at boot.
DRIVER_UNITS=()
# Tests set these two.
ROCM="${ROCM:-/opt/rocm}"
MODULE="${MODULE:-/sys/module/amdgpu}"

# set_up_driver FILES: what AMD's page "Post-installation instructions" asks for: the linker and jobs find ROCm.
set_up_driver() {
  printf '%s\n' "$ROCM/lib" > /etc/ld.so.conf.d/rocm.conf
  ldconfig
  sed -i "1s|\$|:$ROCM/bin|" /opt/actions-runner/.path
}

# Prints the release, such as 30.30.3, if the module of amdgpu-dkms is loaded and ROCm's tools show a GPU. Otherwise
# prints what is wrong. Release 30.30.3 has the package version 1:6.16.13.30300300-2327507.24.04, whose module says
# 6.16.13. Release 31.50 has 1:7.1.3.31500000-2390945.24.04, whose module says 7.1.3 or, since 31.40,
# 7.1.3.31500000 (ROCm/gpu-operator#609).
show_driver() {
  local package loaded agents asics whole release form='^([0-9]+:)?([0-9.]+)\.([0-9]{2})([0-9]{2})([0-9]{2})[0-9]{2}-'
  package="$(dpkg-query -W -f '${Version}' amdgpu-dkms)" || return 0
  loaded="$(cat "$MODULE/version" 2> /dev/null)" || loaded="is not loaded"
  whole="${package#*:}"
  if [[ ! "$package" =~ $form || ("$loaded" != "${BASH_REMATCH[2]}" && "$loaded" != "${whole%%-*}") ]]; then
    printf 'amdgpu %s, of package %s\n' "$loaded" "$package"
    return 0
  fi
  # Their exit status says nothing.
  agents="$("$ROCM/bin/rocminfo" 2>&1)" || true
  asics="$("$ROCM/bin/amd-smi" static --asic --json 2>&1)" || true
  if [[ ! "$agents" =~ Device\ Type:\ +GPU ]]; then
    printf 'rocminfo shows no GPU\n'
  elif [[ ! "$asics" =~ \"target_graphics_version\":\ *\"gfx ]]; then
    printf 'amd-smi shows no GPU\n'
  else
    [[ "$package" =~ $form ]]
    release="$((10#${BASH_REMATCH[3]})).$((10#${BASH_REMATCH[4]})).$((10#${BASH_REMATCH[5]}))"
    printf '%s\n' "${release%.0}"
  fi
}
