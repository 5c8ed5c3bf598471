# shellcheck shell=bash
# Docker, from the distribution: its security updates come with each build.

before() {
  need_free_gb / 4
  getent group docker > /dev/null || fail "the group docker is missing: the step system creates it"
}

apply() {
  apt_install docker.io docker-buildx
  systemctl enable docker.service containerd.service
}

after() {
  need_packages docker.io docker-buildx
  need_command docker dockerd containerd
  systemctl --quiet is-enabled docker.service || fail "Docker does not start at boot"
  note docker "$(docker --version | sed -n 's/^Docker version \([^, ]*\).*/\1/p')"
}
