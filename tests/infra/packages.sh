#!/bin/sh
# Debian's packages that tests/infra starts; without root or apt nothing is installed, and tests say what is missing.
set -eu
command -v slurmctld >/dev/null && command -v buildah >/dev/null && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "not root on Debian: SLURM and the image are skipped"
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq --yes --no-install-recommends munge slurmctld slurmd slurm-client iproute2 openssl buildah debootstrap >/dev/null
