#!/usr/bin/env php
<?php
// PHP's memcached extension (over libmemcached), in ASCII and binary: every method but sessions.
//
//   memcached.php HOST:PORT [--label TEXT]
//
// Prints `ok NAME` or `FAILED NAME: why` per check, and exits 1 if any failed.

declare(strict_types=1);
error_reporting(E_ALL);
set_error_handler(function (int $level, string $what, string $file, int $line): bool {
    throw new ErrorException($what, 0, $level, $file, $line);
});

const EVENTUALLY_S = 20;
const REPLY_MS = 30000;
const TTL = 1000;

[$address, $label] = [$argv[1] ?? '', $argv[3] ?? ''];
if (!str_contains($address, ':') || ($argv[2] ?? '--label') !== '--label') {
    fwrite(STDERR, "usage: memcached.php HOST:PORT [--label TEXT]\n");
    exit(2);
}

function new_key(string $what = 'key'): string
{
    static $number = 0;
    return sprintf('php-%s-%d-%d', $what, getmypid(), $number++);
}

function client(bool $binary, array $options = []): Memcached
{
    global $address;
    $client = new Memcached();
    $times = array_fill_keys([Memcached::OPT_CONNECT_TIMEOUT, Memcached::OPT_POLL_TIMEOUT], REPLY_MS);
    $all = $options + $times + [Memcached::OPT_BINARY_PROTOCOL => $binary, Memcached::OPT_COMPRESSION => false];
    holds($client->setOptions($all), 'an option was refused');
    $at = strrpos($address, ':');
    holds($client->addServer(substr($address, 0, $at), (int) substr($address, $at + 1)), 'no such server');
    return $client;
}

/** Fails unless both are equal, in type too. */
function same(mixed $got, mixed $wanted, string $what = ''): void
{
    if ($got !== $wanted) {
        [$is, $should] = array_map(fn ($value) => substr(var_export($value, true), 0, 200), [$got, $wanted]);
        throw new RuntimeException(trim("$what $is instead of $should"));
    }
}

function holds(bool $condition, string $what): void
{
    if (!$condition) {
        throw new RuntimeException($what);
    }
}

/** Fails unless the call succeeded. */
function fine(Memcached $client, mixed $result, string $what): void
{
    holds($result !== false, "$what: " . $client->getResultMessage());
    same($client->getResultCode(), Memcached::RES_SUCCESS, $what);
}

/** Fails unless the call was refused for this reason. */
function refused(Memcached $client, mixed $result, int $code, string $what): void
{
    same($result, false, $what);
    same($client->getResultCode(), $code, "$what: " . $client->getResultMessage() . ',');
}

function absent(Memcached $client, string $key): void
{
    refused($client, $client->get($key), Memcached::RES_NOTFOUND, 'get of nothing');
}

function eventually(string $what, callable $condition): void
{
    $deadline = microtime(true) + EVENTUALLY_S;
    while (!$condition()) {
        holds(microtime(true) < $deadline, 'after ' . EVENTUALLY_S . " s: $what");
        usleep(50000);
    }
}

function every_byte(): string
{
    return implode('', array_map('chr', range(0, 255)));
}

/** Bytes that no compression makes shorter, the same at each run. */
function noise(int $seed, int $size): string
{
    mt_srand($seed);
    $bytes = '';
    while (strlen($bytes) < $size) {
        $bytes .= pack('V', mt_rand());
    }
    return substr($bytes, 0, $size);
}

$checks = [];

$checks['set, get, delete'] = function (bool $binary): void {
    $client = client($binary);
    $key = new_key();
    absent($client, $key);
    $values = ['text', '', every_byte(), "\r\nEND\r\nVALUE x 0 1\r\n", 42, PHP_INT_MIN, 2.5, true, false, null, [1, ['a' => 'b']]];
    foreach ($values as $value) {
        fine($client, $client->set($key, $value, TTL), 'set');
        same($client->get($key), $value);
        same($client->getResultCode(), Memcached::RES_SUCCESS);
    }
    fine($client, $client->delete($key), 'delete');
    refused($client, $client->delete($key), Memcached::RES_NOTFOUND, 'delete of nothing');
    absent($client, $key);
};

$checks['values of every size class'] = function (bool $binary): void {
    $client = client($binary);
    foreach ([1, 2, 63, 64, 1023, 1024, 1025, 1400, 1472, 9000, 65535, 65536, 500000, 1000000] as $size) {
        [$key, $value] = [new_key(), noise($size, $size)];
        fine($client, $client->set($key, $value), 'set');
        same($client->get($key) === $value, true, "$size bytes");
    }
};

$checks['what is too large is refused'] = function (bool $binary): void {
    $client = client($binary);
    $key = new_key();
    refused($client, $client->set($key, str_repeat('x', 1100000)), Memcached::RES_E2BIG, 'set of 1.1 MB');
    $client = client($binary);
    fine($client, $client->set($key, 'x'), 'set');
    same($client->get($key), 'x');
};

$checks['compression'] = function (bool $binary): void {
    foreach ([Memcached::COMPRESSION_FASTLZ, Memcached::COMPRESSION_ZLIB] as $type) {
        $packing = client($binary, [Memcached::OPT_COMPRESSION => true, Memcached::OPT_COMPRESSION_TYPE => $type]);
        $plain = client($binary);
        foreach ([str_repeat('long ', 200000), str_repeat(every_byte(), 100), noise(1, 50000)] as $value) {
            foreach ([[$packing, $plain], [$plain, $packing]] as [$writer, $reader]) {
                $key = new_key();
                fine($writer, $writer->set($key, $value), 'set');
                same($reader->get($key) === $value, true, 'the value');
            }
        }
    }
    // More than fits, but for the compression.
    [$key, $value] = [new_key(), str_repeat('much ', 1000000)];
    fine($packing, $packing->set($key, $value), 'set of 5 MB');
    same($plain->get($key) === $value, true, 'the value');
};

$checks['serializers'] = function (bool $binary): void {
    $value = ['a' => [1, 2.5, null, true], 'b' => every_byte()];
    foreach ([Memcached::SERIALIZER_PHP, Memcached::SERIALIZER_IGBINARY, Memcached::SERIALIZER_MSGPACK] as $serializer) {
        $client = client($binary, [Memcached::OPT_SERIALIZER => $serializer]);
        $key = new_key();
        fine($client, $client->set($key, $value), 'set');
        same($client->get($key), $value);
    }
    $client = client($binary, [Memcached::OPT_SERIALIZER => Memcached::SERIALIZER_JSON_ARRAY]);
    fine($client, $client->set($key, ['a' => [1, "\u{9375}"]]), 'set');
    same($client->get($key), ['a' => [1, "\u{9375}"]]);
};

$checks["the user's flags"] = function (bool $binary): void {
    $key = new_key();
    foreach ([0, 1, 12345, 65535] as $flags) {
        $client = client($binary, [Memcached::OPT_USER_FLAGS => $flags]);
        fine($client, $client->set($key, 'x'), 'set');
        $got = client($binary)->get($key, null, Memcached::GET_EXTENDED);
        same([$got['value'], $got['flags']], ['x', $flags]);
    }
};

$checks['keys of 250 bytes, and a prefix'] = function (bool $binary): void {
    $client = client($binary);
    $key = str_pad(new_key(), 250, 'k');
    fine($client, $client->set($key, 'x'), 'set');
    same($client->get($key), 'x');
    refused($client, $client->set("a\nb", 'x'), Memcached::RES_BAD_KEY_PROVIDED, 'a key of two lines');
    $key = new_key();
    $prefixed = client($binary, [Memcached::OPT_PREFIX_KEY => 'prefix.']);
    fine($prefixed, $prefixed->set($key, 'y'), 'set');
    absent($client, $key);
    same($client->get("prefix.$key"), 'y');
    same($prefixed->getMulti([$key]), [$key => 'y']);
};

$checks['add, replace, append, prepend'] = function (bool $binary): void {
    $client = client($binary);
    $key = new_key();
    foreach (['append', 'prepend'] as $verb) {
        refused($client, $client->$verb($key, 'x'), Memcached::RES_NOTSTORED, "$verb to nothing");
    }
    $code = $binary ? Memcached::RES_NOTFOUND : Memcached::RES_NOTSTORED;
    refused($client, $client->replace($key, 'x'), $code, 'replace of nothing');
    fine($client, $client->add($key, '1', TTL), 'add');
    $code = $binary ? Memcached::RES_DATA_EXISTS : Memcached::RES_NOTSTORED;
    refused($client, $client->add($key, '2'), $code, 'add again');
    same($client->get($key), '1');
    fine($client, $client->replace($key, '3'), 'replace');
    fine($client, $client->append($key, every_byte()), 'append');
    fine($client, $client->prepend($key, "2\r\n"), 'prepend');
    same($client->get($key), "2\r\n3" . every_byte());
};

$checks['cas'] = function (bool $binary): void {
    $client = client($binary);
    $key = new_key();
    fine($client, $client->set($key, '1'), 'set');
    $seen = $client->get($key, null, Memcached::GET_EXTENDED);
    same([$seen['value'], $client->get($key, null, Memcached::GET_EXTENDED)], ['1', $seen]);
    fine($client, $client->cas($seen['cas'], $key, every_byte(), TTL), 'cas');
    refused($client, $client->cas($seen['cas'], $key, '3'), Memcached::RES_DATA_EXISTS, 'cas again');
    same($client->get($key), every_byte());
    $last = $client->get($key, null, Memcached::GET_EXTENDED);
    fine($client, $client->delete($key), 'delete');
    refused($client, $client->cas($last['cas'], $key, '4'), Memcached::RES_NOTFOUND, 'cas of nothing');
    absent($client, $key);
};

$checks['increment and decrement'] = function (bool $binary): void {
    $client = client($binary);
    $key = new_key();
    refused($client, $client->increment($key), Memcached::RES_NOTFOUND, 'increment of nothing');
    refused($client, $client->decrement($key), Memcached::RES_NOTFOUND, 'decrement of nothing');
    fine($client, $client->set($key, 10), 'set');
    same($client->increment($key), 11);
    same($client->increment($key, 5), 16);
    same($client->decrement($key, 7), 9);
    same($client->get($key), 9);
    same($client->decrement($key, 100), 0, 'below 0');
    same($client->increment($key, PHP_INT_MAX), PHP_INT_MAX);
    fine($client, $client->set($key, 'text'), 'set');
    same($client->increment($key), false);
    same($client->get($key), 'text');
};

$checks['increment with an initial value'] = function (bool $binary): void {
    $client = client($binary);
    $key = new_key();
    if (!$binary) {
        // The extension refuses this itself: ASCII has no such command.
        try {
            $client->increment($key, 1, 5, TTL);
            throw new RuntimeException('it was not refused');
        } catch (ErrorException $e) {
            holds(str_contains($e->getMessage(), 'binary protocol'), $e->getMessage());
        }
        absent($client, $key);
        return;
    }
    same($client->increment($key, 3, 5, TTL), 5);
    same($client->get($key), '5');
    same($client->increment($key, 3, 5, TTL), 8);
    same($client->decrement($key, 2, 5, TTL), 6);
    $other = new_key();
    same($client->decrement($other, 3, 100, 1), 100);
    eventually('the counter is still there', fn () => $client->get($other) === false);
    same($client->get($key), '6');
};

$checks['multi-get, setMulti, deleteMulti'] = function (bool $binary): void {
    $client = client($binary);
    $items = [];
    for ($i = 0; $i < 500; $i++) {
        $items[new_key('multi')] = noise($i, $i * 7 % 2000);
    }
    fine($client, $client->setMulti($items, TTL), 'setMulti');
    $absent = [new_key('absent'), new_key('absent')];
    $got = $client->getMulti([...array_keys($items), ...$absent]);
    ksort($got);
    $wanted = $items;
    ksort($wanted);
    same($got === $wanted, true, count($got) . ' items, or a wrong value,');
    $ordered = $client->getMulti([$absent[0], ...array_reverse(array_keys($items))], Memcached::GET_PRESERVE_ORDER);
    same($ordered === [$absent[0] => null] + array_reverse($items), true, 'in order');
    $extended = $client->getMulti(array_keys($items), Memcached::GET_EXTENDED);
    same(count(array_unique(array_column($extended, 'cas'))), count($items), 'distinct CAS ids');
    foreach (array_slice($extended, 0, 20) as $key => $item) {
        fine($client, $client->cas($item['cas'], $key, 'new'), 'cas');
    }
    same($client->getMulti($absent), []);
    $deleted = $client->deleteMulti([...array_keys($items), $absent[0]]);
    same($deleted[$absent[0]], Memcached::RES_NOTFOUND);
    same(count(array_filter($deleted, fn ($result) => $result === true)), count($items), 'deleted');
    same($client->getMulti(array_keys($items)), []);
};

$checks['delayed get, fetch'] = function (bool $binary): void {
    $client = client($binary);
    $items = [new_key() => every_byte(), new_key() => '', new_key() => 'x'];
    fine($client, $client->setMulti($items), 'setMulti');
    holds($client->getDelayed([...array_keys($items), new_key()], true), 'getDelayed');
    $got = [];
    while (is_array($item = $client->fetch())) {
        $got[$item['key']] = $item['value'];
        holds($item['cas'] > 0, 'no CAS id');
    }
    same($client->getResultCode(), Memcached::RES_NOTFOUND, 'after the last item');
    ksort($got);
    ksort($items);
    same($got, $items);
    holds($client->getDelayed(array_keys($items)), 'getDelayed');
    same(count($client->fetchAll()), 3, 'fetchAll');
};

$checks['the same by a key for the server'] = function (bool $binary): void {
    $client = client($binary);
    $key = new_key();
    fine($client, $client->addByKey('s', $key, 1), 'addByKey');
    fine($client, $client->replaceByKey('s', $key, '2'), 'replaceByKey');
    fine($client, $client->appendByKey('s', $key, '3'), 'appendByKey');
    fine($client, $client->prependByKey('s', $key, '1'), 'prependByKey');
    same($client->getByKey('s', $key), '123');
    fine($client, $client->touchByKey('s', $key, TTL), 'touchByKey');
    same($client->getMultiByKey('s', [$key]), [$key => '123']);
    $seen = $client->getByKey('s', $key, null, Memcached::GET_EXTENDED);
    fine($client, $client->casByKey($seen['cas'], 's', $key, '7'), 'casByKey');
    same($client->incrementByKey('s', $key, 3), 10);
    same($client->decrementByKey('s', $key, 4), 6);
    fine($client, $client->setByKey('s', $key, 'x', TTL), 'setByKey');
    fine($client, $client->setMultiByKey('s', [$key => 'y']), 'setMultiByKey');
    same($client->get($key), 'y');
    same($client->deleteMultiByKey('s', [$key]), [$key => true]);
    refused($client, $client->deleteByKey('s', $key), Memcached::RES_NOTFOUND, 'deleteByKey');
};

$checks['touch and expiry'] = function (bool $binary): void {
    $client = client($binary);
    [$kept, $gone, $touched, $past] = [new_key(), new_key(), new_key(), new_key()];
    refused($client, $client->touch($kept, TTL), Memcached::RES_NOTFOUND, 'touch of nothing');
    fine($client, $client->setMulti([$kept => every_byte(), $touched => '2'], TTL), 'setMulti');
    fine($client, $client->set($gone, '3', 1), 'set');
    fine($client, $client->set($past, '4', time() - 100), 'set');
    absent($client, $past);
    fine($client, $client->touch($kept, time() + 5000), 'touch with a time of day');
    fine($client, $client->touch($touched, 1), 'touch');
    eventually('items are still there', fn () => $client->getMulti([$gone, $touched]) === []);
    same($client->get($kept), every_byte());
};

$checks['a callback fills what is missing'] = function (bool $binary): void {
    $client = client($binary);
    $key = new_key();
    $fill = function (Memcached $client, string $key, &$value): bool {
        $value = "made for $key";
        return true;
    };
    same($client->get($key, $fill), "made for $key");
    same($client->get($key), "made for $key");
};

$checks['buffered and quiet writes'] = function (bool $binary): void {
    $reader = client($binary);
    foreach ([Memcached::OPT_BUFFER_WRITES, Memcached::OPT_NOREPLY] as $option) {
        $client = client($binary, [$option => true]);
        $keys = array_map(fn () => new_key(), range(1, 300));
        foreach ($keys as $i => $key) {
            same($client->set($key, noise($i, 200)), true, 'set');
        }
        $client->flushBuffers();
        $client->quit();
        eventually('a write is missing', fn () => count($reader->getMulti($keys)) === count($keys));
        foreach ($keys as $i => $key) {
            same($reader->get($key) === noise($i, 200), true, 'the value');
        }
    }
};

$checks['version, stats, flush'] = function (bool $binary): void {
    global $address;
    $client = client($binary);
    holds(preg_match('/^1\.\d+\.\d+/', $client->getVersion()[$address]) === 1, 'no version number');
    $stats = $client->getStats();
    holds((int) $stats[$address]['curr_items'] >= 0, 'no curr_items');
    $settings = $client->getStats('settings');
    holds(isset($settings[$address]['maxbytes']), 'no maxbytes in the settings');
    $key = new_key();
    fine($client, $client->set($key, 'x'), 'set');
    fine($client, $client->flush(), 'flush');
    absent($client, $key);
    fine($client, $client->set($key, 'y'), 'set');
    same($client->get($key), 'y');
};

$failures = 0;
foreach (['ASCII' => false, 'binary' => true] as $protocol => $binary) {
    foreach ($checks as $name => $body) {
        try {
            $body($binary);
            echo "ok      $label$protocol: $name\n";
        } catch (Throwable $e) {
            $failures++;
            echo "FAILED  $label$protocol: $name: {$e->getMessage()} (line {$e->getTrace()[0]['line']})\n";
        }
    }
}
exit($failures ? 1 : 0);
