#!/usr/bin/env bash
# TLS over kernel sockets, over loopback, and by the workers, over DPDK's net_tap: openssl's client, pymemcache,
# half and slow handshakes, certificates renewed under load, handshakes beside load.
#
#   tests/e2e/tls.sh [kernel] [worker]     default: both
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
# shellcheck source=tests/e2e/venv.sh
. tests/e2e/venv.sh
# shellcheck source=tests/e2e/wire.sh
. tests/e2e/wire.sh
[ "$#" -gt 0 ] || set -- kernel worker
need_netns
check "the clients' libraries" make_venv
dir=$scratch/certificates
mkdir -p "$dir"
cat >"$dir/renew" <<'RENEW'
#!/bin/sh
# renew DIR NAME: a new key and certificate of the server, put in the place of the old ones.
set -e
cd "$1"
openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout new.key -subj "/O=$2/CN=localhost" -out new.csr
printf 'subjectAltName=DNS:localhost,IP:127.0.0.1,IP:10.77.0.1' >new.ext
openssl x509 -req -in new.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile new.ext -out new.pem
chmod 644 new.key
mv new.key server.key
mv new.pem server.pem
RENEW
chmod 755 "$dir" "$dir/renew" "$scratch"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$dir/ca.key" -out "$dir/ca.pem" \
  -days 30 -subj /CN=authority 2>/dev/null
"$dir/renew" "$dir" first 2>/dev/null
for who in client stranger; do
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$dir/$who.key" -subj "/CN=$who" \
    -out "$dir/$who.csr" 2>/dev/null
done
echo extendedKeyUsage=clientAuth >"$dir/client.ext"
openssl x509 -req -in "$dir/client.csr" -CA "$dir/ca.pem" -CAkey "$dir/ca.key" -CAcreateserial -days 30 \
  -extfile "$dir/client.ext" -out "$dir/client.pem" 2>/dev/null
openssl x509 -req -in "$dir/stranger.csr" -signkey "$dir/stranger.key" -days 30 -extfile "$dir/client.ext" \
  -out "$dir/stranger.pem" 2>/dev/null
ssl="ssl_chain_cert=$dir/server.pem,ssl_key=$dir/server.key"

# serve_kernel FLAGS..., serve_worker FLAGS...: a server, $at and $port where it serves, and $ns where its clients are.
serve_kernel() {
  at=127.0.0.1 port=11411
  netns "loopback$RANDOM" ns
  server_start "$ns" -u nobody -p "$port" -c 1024 -t 2 -I 8m -m 256 -Z "$@"
  server_wait "the server is ready" grep -q ready "$server_log"
}

serve_worker() {
  at=$v4 port=11211
  wire_up net_tap --tcp worker -c 1024 -I 8m -m 256 -Z "$@"
  ns=$client
  ip -n "$ns" addr add 10.77.0.9/24 dev "$device"
  ip -n "$ns" addr add 10.77.0.10/24 dev "$device"
}

# asked [WHAT]: what tls.py has to say of it.
asked() {
  counted in_ns "$ns" "$venv/bin/python" tests/e2e/tls.py "$at" "$port" "$server_pid" "$dir" "$@"
}

for served in "$@"; do
  "serve_$served" -o "$ssl"
  asked
  asked end
  check "$served: it ends in good order" wait "$server_pid"
  "serve_$served" -o "$ssl,ssl_ca_cert=$dir/ca.pem,ssl_verify_mode=2"
  asked mutual
  server_stop
done
totals
