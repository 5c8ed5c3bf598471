# shellcheck shell=bash disable=SC2034 # the step `driver` reads the variables
# NVIDIA's driver, for the step `driver` and for the image's own test: `set_up_driver` runs after the agent has
# installed it, DRIVER_UNITS start at boot, and `show_driver` prints the version that the GPUs show.

DRIVER_RECIPE=linux-gpu
DRIVER_UNITS=(runner-gpu.service)

# set_up_driver FILES
set_up_driver() {
  install -D -m 644 "$1/runner-gpu.service" /etc/systemd/system/runner-gpu.service
  install -D -m 755 "$1/check_gpus.py" /opt/runner-agent/health-check
}

show_driver() {
  # The exit status of nvidia-smi says nothing: it is 0 although a GPU has failed.
  nvidia-smi --query-gpu=driver_version --format=csv,noheader | sort -u
}
