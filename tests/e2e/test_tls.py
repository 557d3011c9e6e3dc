"""TLS over kernel sockets, over loopback, and by the workers, over DPDK's net_tap: openssl's client, pymemcache, half
and slow handshakes, certificates renewed under load, handshakes beside load. `-k kernel` or `-k worker`: one of
them."""

import pytest
from harness.namespaces import must
from harness.wires import V4

LIMITS = ("-c", "1024", "-I", "8m", "-m", "256", "-Z")

MADE = """set -e
cd "$1"
cat >renew <<'RENEW'
#!/bin/sh
# renew DIR NAME: a new key and certificate of the server, put in the place of the old ones.
set -e
cd "$1"
openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout new.key \
  -subj "/O=$2/CN=localhost" -out new.csr
printf 'subjectAltName=DNS:localhost,IP:127.0.0.1,IP:10.77.0.1' >new.ext
openssl x509 -req -in new.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile new.ext -out new.pem
chmod 644 new.key
mv new.key server.key
mv new.pem server.pem
RENEW
chmod 755 renew . ..
key="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
openssl req -x509 $key -keyout ca.key -out ca.pem -days 30 -subj /CN=authority
./renew . first
for who in client stranger; do openssl req -new $key -keyout $who.key -subj /CN=$who -out $who.csr; done
echo extendedKeyUsage=clientAuth >client.ext
openssl x509 -req -in client.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile client.ext -out client.pem
openssl x509 -req -in stranger.csr -signkey stranger.key -days 30 -extfile client.ext -out stranger.pem
"""


@pytest.fixture
def certificates(scratch):
    """Of an authority, of the server, and of clients; and `renew`, which makes the server another one."""
    folder = scratch / "certificates"
    folder.mkdir()
    must("bash", "-c", MADE, "bash", folder)
    return folder


def test_libraries(check, libraries):
    check("the clients' libraries")


@pytest.mark.parametrize("served", ["kernel", "worker"])
def test_tls(check, namespace, gnomon, wire, libraries, certificates, served):
    def serve(options):
        """A server, where it serves, and where its clients are."""
        if served == "kernel":
            place = namespace("loopback")
            up = gnomon(place, "-u", "nobody", "-p", "11411", "-t", "2", *LIMITS, "-o", options)
            up.ready("the server is ready")
            return up, place, ("127.0.0.1", "11411")
        cable = wire("net_tap", "--tcp", "worker", *LIMITS, "-o", options)
        for address in ("10.77.0.9/24", "10.77.0.10/24"):
            cable.client.ip(f"addr add {address} dev {cable.device}")
        return cable.gnomon, cable.client, (V4, "11211")

    def asked(*what):
        """What tls.py has to say of it."""
        check.counted(*place.argv(*libraries, "tests/e2e/tls.py", *at, str(up.pid), certificates, *what))

    chain = f"ssl_chain_cert={certificates}/server.pem,ssl_key={certificates}/server.key"
    up, place, at = serve(chain)
    asked()
    asked("end")
    status = up.ends(30)
    check(f"{served}: it ends in good order", status == 0, f"exit status {status}\n{up.tail()}")
    up, place, at = serve(f"{chain},ssl_ca_cert={certificates}/ca.pem,ssl_verify_mode=2")
    asked("mutual")
    up.stop()
