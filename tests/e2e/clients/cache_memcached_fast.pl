#!/usr/bin/perl
# Cache::Memcached::Fast (C under Perl, ASCII): every method, and noreply in void context.
#
#   cache_memcached_fast.pl HOST:PORT [--label TEXT]
#
# Prints `ok NAME` or `FAILED NAME: why` per check, and exits 1 if any failed.
use strict;
use warnings;
use Cache::Memcached::Fast;
use Data::Dumper;
use Time::HiRes qw(sleep time);

my $EVENTUALLY_S = 20;
my ($server, $flag, $label) = @ARGV;
die "usage: cache_memcached_fast.pl HOST:PORT [--label TEXT]\n"
    unless $server && ($flag // '--label') eq '--label';
$label //= '';
$Data::Dumper::Terse = $Data::Dumper::Sortkeys = 1;
$Data::Dumper::Indent = 0;
$| = 1;

my ($failures, $number) = (0, 0);

sub new_key { return join '-', shift // 'key', $$, $number++ }

sub client { return Cache::Memcached::Fast->new({ servers => [$server], io_timeout => 30, utf8 => 1, @_ }) }

# same GOT, WANTED, WHAT: dies unless both, whatever they are made of, are equal. The prototype
# gives methods scalar context: a miss is undef.
sub same($$;$) {
    my ($got, $wanted, $what) = @_;
    my ($is, $should) = map { Dumper(ref $_ ? $_ : defined $_ ? "$_" : undef) } $got, $wanted;
    die join(' ', $what // (), substr($is, 0, 200), 'instead of', substr($should, 0, 200)) . "\n" if $is ne $should;
}

sub holds { my ($condition, $what) = @_; die "$what\n" unless $condition }

# refused ANSWER, WHAT: dies unless the server answered no. An error would be undef.
sub refused { my ($answer, $what) = @_; die "$what\n" unless defined $answer && !$answer }

sub eventually {
    my ($what, $condition) = @_;
    my $deadline = time + $EVENTUALLY_S;
    until ($condition->()) {
        die "after $EVENTUALLY_S s: $what\n" if time > $deadline;
        sleep 0.05;
    }
}

sub check {
    my ($name, $body) = @_;
    if (eval { $body->(client()); 1 }) {
        print "ok      $label$name\n";
    } else {
        $failures++;
        print "FAILED  $label$name: $@";
    }
}

check 'set, get, delete' => sub {
    my ($client) = @_;
    my $key = new_key;
    same($client->get($key), undef);
    for my $value ('text', 42, '', "line\r\nEND\r\n", { a => [1, 2] }, 'x' x 1_000_000) {
        holds($client->set($key, $value), 'was not stored');
        same($client->get($key), $value);
    }
    holds($client->delete($key), 'was not deleted');
    refused($client->delete($key), 'was deleted twice');
    same($client->get($key), undef);
};

check 'keys of 250 bytes, and Unicode' => sub {
    my ($client) = @_;
    my $key = new_key;
    $key .= 'k' x (250 - length $key);
    holds($client->set($key, "\x{9375}"), 'was not stored');
    same($client->get($key), "\x{9375}");
};

check 'add, replace, append, prepend' => sub {
    my ($client) = @_;
    my $key = new_key;
    refused($client->$_($key, 'x'), "$_ of nothing") for qw(replace append prepend);
    holds($client->add($key, '1'), 'was not added');
    refused($client->add($key, '2'), 'was added twice');
    holds($client->replace($key, '3'), 'was not replaced');
    holds($client->append($key, '4'), 'was not appended');
    holds($client->prepend($key, '2'), 'was not prepended');
    same($client->get($key), '234');
};

check 'gets and cas' => sub {
    my ($client) = @_;
    my $key = new_key;
    same($client->gets($key), undef);
    $client->set($key, '1');
    my ($cas, $value) = @{ $client->gets($key) };
    same($value, '1');
    holds($client->cas($key, $cas, '2'), 'was not stored');
    refused($client->cas($key, $cas, '3'), 'was stored with an old id');
    same($client->get($key), '2');
};

check 'incr and decr' => sub {
    my ($client) = @_;
    my $key = new_key;
    refused($client->$_($key), "$_ of nothing") for qw(incr decr);
    $client->set($key, 20);
    same($client->incr($key), 21);
    same($client->incr($key, 10), 31);
    same($client->decr($key), 30);
    same($client->decr($key, 100), '0E0');
};

check 'touch, gat and gats, and expiry' => sub {
    my ($client) = @_;
    my ($key, $other, $third) = map { new_key } 1 .. 3;
    refused($client->touch($key, 10), 'touch of nothing');
    same($client->gat(10, $key), undef);
    $client->set($_, 'x', 3600) for $key, $third;
    $client->set($other, 'x', 1);
    holds($client->touch($other, 3600), 'was not touched');
    same($client->gat(1, $key), 'x');
    my ($cas, $value) = @{ $client->gats(1, $third) };
    same($cas, $client->gets($third)->[0], 'the CAS id of gats');
    same($value, 'x');
    eventually('what gat and gats gave a new exptime does not expire',
        sub { !defined $client->get($key) && !defined $client->get($third) });
    same($client->get($other), 'x');
};

check 'methods of many keys' => sub {
    my ($client) = @_;
    my @keys = map { new_key } 1 .. 100;
    my $missing = new_key;
    my $n = 0;
    my %items = map { $_ => 'item ' . ++$n } @keys;
    my @yes = (1) x @keys;
    same([ $client->set_multi(map { [ $_, $items{$_} ] } @keys) ], \@yes, 'set_multi');
    same($client->get_multi(@keys, $missing), \%items, 'get_multi');
    $client->set($keys[0], 1);
    $items{ $keys[0] } = '1';
    same([ map { $_ ? 1 : 0 } $client->add_multi([ $keys[0], 'x' ], [ $missing, 'x' ]) ], [ 0, 1 ], 'add_multi');
    same([ $client->replace_multi([ $missing, 5 ]) ], [1], 'replace_multi');
    same([ $client->append_multi([ $missing, 6 ]) ], [1], 'append_multi');
    same([ $client->prepend_multi([ $missing, 4 ]) ], [1], 'prepend_multi');
    same($client->get($missing), '456');
    same([ $client->incr_multi([ $missing, 4 ], $keys[0]) ], [ '460', '2' ], 'incr_multi');
    same([ $client->decr_multi([ $missing, 60 ], $keys[0]) ], [ '400', '1' ], 'decr_multi');
    my $gets = $client->gets_multi(@keys);
    same({ map { $_ => $gets->{$_}[1] } @keys }, \%items, 'gets_multi');
    same([ $client->cas_multi(map { [ $_, $gets->{$_}[0], 'y' ] } @keys) ], \@yes, 'cas_multi');
    same([ $client->touch_multi(map { [ $_, 3600 ] } @keys) ], \@yes, 'touch_multi');
    same($client->gat_multi(3600, @keys), { map { $_ => 'y' } @keys }, 'gat_multi');
    same(scalar keys %{ $client->gats_multi(3600, @keys) }, scalar @keys, 'gats_multi');
    same([ $client->delete_multi(@keys) ], \@yes, 'delete_multi');
    same($client->get_multi(@keys), {}, 'get_multi of nothing');
};

check 'no method answers with noreply' => sub {
    my $client = client(nowait => 1);
    my $key = new_key;
    $client->set($key, '1');
    $client->add($key, '2');
    same($client->get($key), '1', 'set and add');
    $client->replace($key, '3');
    $client->append($key, '4');
    $client->prepend($key, '2');
    $client->incr($key, 2);
    $client->decr($key, 1);
    same($client->get($key), '235', 'replace, append, prepend, incr and decr');
    my ($cas) = @{ $client->gets($key) };
    $client->cas($key, $cas, '4');
    $client->cas($key, $cas, '5');
    same($client->get($key), '4', 'cas');
    $client->touch($key, 3600);
    $client->delete($key);
    same($client->get($key), undef, 'touch and delete');
    $client->set($key, '6');
    $client->flush_all;
    same($client->get($key), undef, 'flush_all');
    $client->set_multi(map { [ $key . $_, 'x' ] } 1 .. 1000);
    $client->nowait_push;
    same($client->get($key . '1000'), 'x', 'set_multi');
};

check 'server_versions, flush_all, disconnect_all' => sub {
    my ($client) = @_;
    my $key = new_key;
    my ($version) = values %{ $client->server_versions };
    holds($version =~ /^1\./, "the version is $version");
    $client->set($key, 'x');
    same([ values %{ $client->flush_all } ], [1]);
    same($client->get($key), undef);
    $client->disconnect_all;
    holds($client->set($key, 'y'), 'was not stored over a new connection');
    same([ values %{ $client->flush_all(3600) } ], [1], 'a delayed flush');
    same($client->get($key), 'y');
};

exit($failures ? 1 : 0);
