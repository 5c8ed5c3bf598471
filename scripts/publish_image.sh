#!/usr/bin/env bash
# Builds and pushes a container image of a release, in the release workflow (docs/release.md).
#
#   scripts/publish_image.sh platform IMAGE ARCHITECTURE     build it for linux/ARCHITECTURE, and push it
#   scripts/publish_image.sh index IMAGE                     join its platforms under the version, and sign it
#
# REGISTRY, VERSION and TOKEN say where to push, under which tag, and with which password. IMAGE is a name of
# `autoscaler images build`. `index` writes `name` and `digest` to GITHUB_OUTPUT.
set -euo pipefail

SBOM=/usr/share/sbom.cdx.json

step="$1" image="$2"
# The controller's image has the name of the project.
name="$REGISTRY/${image/#controller/gpu-runner-autoscaler}"

log_in() {
  echo "$TOKEN" | docker login "${REGISTRY%%/*}" --username "$GITHUB_ACTOR" --password-stdin
}

push_platform() {
  local tagged="$name:$VERSION-$1"
  .venv/bin/autoscaler images build "$image" --platform "linux/$1" --tag "$tagged"
  docker push "$tagged"
}

# The bill of materials is part of each platform's image. Signed and beside it, scanners find it without a pull.
attest_bill() {
  local reference="$1" architecture="$2" container
  container="$(docker create --platform "linux/$architecture" "$reference")"
  docker cp "$container:$SBOM" sbom.cdx.json
  docker rm "$container" > /dev/null
  cosign attest --yes --type cyclonedx --predicate sbom.cdx.json "$reference"
}

join_platforms() {
  local architecture reference digest
  local -A platforms=()
  for architecture in amd64 arm64; do
    reference="$name:$VERSION-$architecture"
    [[ "$image $architecture" != "runner-rocm arm64" ]] || continue
    digest="$(docker buildx imagetools inspect "$reference" --format '{{.Manifest.Digest}}')"
    platforms[$architecture]="$name@$digest"
  done
  docker buildx imagetools create --tag "$name:$VERSION" "${platforms[@]}"
  digest="$(docker buildx imagetools inspect "$name:$VERSION" --format '{{.Manifest.Digest}}')"
  cosign sign --yes --recursive "$name@$digest"
  for architecture in "${!platforms[@]}"; do
    attest_bill "${platforms[$architecture]}" "$architecture"
  done
  printf 'name=%s\ndigest=%s\n' "$name" "$digest" >> "$GITHUB_OUTPUT"
}

log_in
case "$step" in
  platform) push_platform "$3" ;;
  index) join_platforms ;;
  *)
    echo "error: no step $step; name platform or index" >&2
    exit 2
    ;;
esac
