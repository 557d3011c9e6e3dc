#!/usr/bin/env bash
# TLS over kernel sockets: openssl's client, pymemcache, half and slow handshakes, certificates renewed
# under load, handshakes beside load. Over loopback.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/e2e/lib.sh
. tests/e2e/lib.sh
# shellcheck source=tests/e2e/venv.sh
. tests/e2e/venv.sh
need_netns
check "the clients' libraries" make_venv
ns=""
netns ns
dir=$scratch/certificates
mkdir -p "$dir"
cat >"$dir/renew" <<'RENEW'
#!/bin/sh
# renew DIR NAME: a new key and certificate of the server, put in the place of the old ones.
set -e
cd "$1"
openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout new.key -subj "/O=$2/CN=localhost" -out new.csr
printf 'subjectAltName=DNS:localhost,IP:127.0.0.1' >new.ext
openssl x509 -req -in new.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile new.ext -out new.pem
chmod 644 new.key
mv new.key server.key
mv new.pem server.pem
RENEW
chmod 755 "$dir" "$dir/renew" "$scratch"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$dir/ca.key" -out "$dir/ca.pem" \
  -days 30 -subj /CN=authority 2>/dev/null
"$dir/renew" "$dir" first 2>/dev/null
server_start "$ns" -u nobody -p 11411 -c 1024 -t 2 -Z -o "ssl_chain_cert=$dir/server.pem,ssl_key=$dir/server.key"
server_wait "the server is ready" grep -q ready "$server_log"
counted in_ns "$ns" "$venv/bin/python" tests/e2e/tls.py 11411 "$server_pid" "$dir"
server_stop
totals
