"""Several appliances behind nutcracker, libmemcached and pymemcache, set up as docs/scale-out.md shows: one is lost
and comes back, one is cut off, a fourth comes. See scale_out/drill.py."""


def test_libraries(check, libraries):
    check("the libraries in Python")


def test_scale_out(check, namespace, libraries):
    # One switch, with the clients at it; each appliance in a namespace of its own behind a cable.
    client = namespace("client")
    client.ip("link add br0 type bridge")
    client.ip("addr add 10.0.0.1/24 dev br0")
    client.ip("link set br0 up")
    appliances = [namespace(f"appliance{n}-") for n in (1, 2, 3, 4)]
    for n, appliance in enumerate(appliances, 1):
        client.ip(f"link add port{n} type veth peer name eth0 netns {appliance.name}")
        client.ip(f"link set port{n} master br0 up")
        appliance.ip(f"addr add 10.0.0.1{n}/24 dev eth0")
        appliance.ip("link set eth0 up")
    drill = ("timeout", "--foreground", "560", *libraries, "tests/e2e/scale_out/drill.py")
    check.counted(*client.argv(*drill, *(appliance.name for appliance in appliances)))
