#!/bin/sh
# Makes ca.crt, tls.crt and tls.key of a private authority in a folder: make-certificates.sh FOLDER [DAYS]
# One certificate that is its own authority: anyone who has the key, and nobody else, can join the cluster.
set -eu
umask 077
folder=${1:?usage: make-certificates.sh FOLDER [DAYS]}
mkdir -p "$folder"
openssl req -x509 -newkey rsa:3072 -nodes -sha256 -days "${2:-90}" -subj "/CN=dask-dca" \
    -addext "keyUsage=critical,digitalSignature,keyEncipherment,keyCertSign" \
    -keyout "$folder/tls.key" -out "$folder/tls.crt" 2>/dev/null
cp "$folder/tls.crt" "$folder/ca.crt"
