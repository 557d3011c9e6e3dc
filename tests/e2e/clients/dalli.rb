#!/usr/bin/env ruby
# frozen_string_literal: true

# Dalli (Ruby, binary protocol): every method, the quiet ones in multi blocks included.
#
#   dalli.rb HOST:PORT [--label TEXT]
#
# Prints `ok NAME` or `FAILED NAME: why` per check, and exits 1 if any failed.

require 'dalli'
require 'logger'

EVENTUALLY_S = 20
CHECKS = []
NUMBERS = (1..).each

Dalli.logger = Logger.new(File::NULL)

def check(name, &block)
  CHECKS << [name, block]
end

def new_key(what = 'key')
  "#{what}-#{Process.pid}-#{NUMBERS.next}"
end

def same(got, wanted, what = '')
  raise "#{what} #{got.inspect} instead of #{wanted.inspect}".strip unless got == wanted
end

def holds(condition, what)
  raise what unless condition
end

def eventually(what)
  deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + EVENTUALLY_S
  until yield
    raise "after #{EVENTUALLY_S} s: #{what}" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline

    sleep 0.05
  end
end

check 'set, get, delete' do |client|
  key = new_key
  same(client.get(key), nil)
  ['text', 42, nil, [1, { 'a' => 2.5 }], '', 'x' * 500_000].each do |value|
    holds(client.set(key, value), "#{value.inspect[0, 40]} was not stored")
    same(client.get(key), value)
  end
  holds(client.set(key, "\x00\xff\r\nEND\r\n".b, nil, raw: true), 'raw bytes were not stored')
  same(client.get(key, raw: true).b, "\x00\xff\r\nEND\r\n".b)
  same(client.delete(key), true)
  same(client.delete(key), nil)
  same(client.get(key), nil)
end

check 'keys of 250 bytes, and longer ones' do |client|
  [new_key.ljust(250, 'k'), new_key.ljust(400, 'k')].each do |key|
    holds(client.set(key, 'x'), 'was not stored')
    same(client.get(key), 'x')
  end
end

check 'compression' do |client|
  key = new_key
  holds(client.set(key, 'long ' * 100_000, nil, compress: true), 'was not stored')
  same(client.get(key), 'long ' * 100_000)
end

check 'add and replace' do |client|
  key = new_key
  # Instead of the new CAS id, which is true of any number but this one.
  same(client.replace(key, '0'), 0)
  holds(client.add(key, '1'), 'was not added')
  same(client.add(key, '2'), false)
  holds(client.replace(key, '3'), 'was not replaced')
  same(client.get(key), '3')
end

check 'append and prepend' do |client|
  key = new_key
  same(client.append(key, 'x'), false)
  same(client.prepend(key, 'x'), false)
  client.set(key, 'middle', nil, raw: true)
  same(client.append(key, ' end'), true)
  same(client.prepend(key, 'start '), true)
  same(client.get(key, raw: true), 'start middle end')
end

check 'incr and decr, with and without initial values' do |client|
  key = new_key
  same(client.incr(key, 5), nil)
  same(client.incr(key, 5, 100, 7), 7)
  same(client.incr(key, 5), 12)
  same(client.decr(key, 2), 10)
  same(client.decr(key, 100), 0)
  same(client.decr(new_key, 1, 100, 50), 50)
  same(client.decr(new_key, 1), nil)
end

check 'CAS ids' do |client|
  key = new_key
  same(client.cas(key) { raise 'called for nothing' }, nil)
  client.set(key, 1)
  holds(client.cas(key) { |value| value + 1 }, 'was not stored')
  same(client.cas(key) { |value| client.set(key, 10) && value }, false, 'an old id')
  same(client.get(key), 10)
  holds(client.cas!(new_key) { 'made' }, 'cas! did not make it')
  value, cas = client.get_cas(key)
  same(value, 10)
  new_cas = client.set_cas(key, 11, cas)
  holds(new_cas && new_cas != cas, 'set_cas')
  same(client.replace_cas(key, 12, cas), false, 'replace_cas with an old id')
  new_cas = client.replace_cas(key, 12, new_cas)
  same(client.get_multi_cas(key), { key => [12, new_cas] })
  same(client.delete_cas(key, cas), false, 'delete_cas with an old id')
  same(client.delete_cas(key, new_cas), true)
end

check 'touch and gat, and expiry' do |client|
  key, other, third = new_key, new_key, new_key
  same(client.touch(key, 10), nil)
  same(client.gat(key, 10), nil)
  [key, third].each { |k| client.set(k, 'x', 3600) }
  client.set(other, 'x', 1)
  same(client.touch(other, 3600), true)
  same(client.touch(third, 1), true)
  same(client.gat(key, 1), 'x')
  eventually('a key that was touched or got with a new exptime does not expire') do
    client.get(key).nil? && client.get(third).nil?
  end
  same(client.get(other), 'x')
end

check 'get_multi' do |client|
  items = (1..100).to_h { |i| [new_key, i] }
  items.each { |key, value| client.set(key, value) }
  same(client.get_multi(items.keys + [new_key]), items)
  got = {}
  client.get_multi(items.keys) { |key, value| got[key] = value }
  same(got, items)
end

# In such a block this release waits for the replies of the other methods, which some of the quiet
# commands never get.
check 'quiet commands in a multi block' do |client|
  key, other, gone = new_key, new_key, new_key
  client.set(gone, 'x')
  client.multi do
    client.set(key, '1')
    client.add(key, '2')
    client.add(other, '3')
    client.replace(other, '4')
    client.replace(new_key, '5')
    client.delete(gone)
    client.delete(new_key)
  end
  same(client.get_multi(key, other, gone), { key => '1', other => '4' })
  client.multi { client.flush }
  same(client.get(key), nil)
end

check 'fetch' do |client|
  key = new_key
  same(client.fetch(key) { 'made' }, 'made')
  same(client.fetch(key) { raise 'called for nothing' }, 'made')
end

check 'stats, version, flush' do |client|
  key = new_key
  client.set(key, 'x')
  holds(client.version.values.first.start_with?('1.'), 'no version number')
  holds(client.stats.values.first['curr_items'].to_i >= 1, 'no item in the stats')
  %i[items slabs settings].each { |kind| holds(!client.stats(kind).values.first.empty?, "no #{kind}") }
  client.get(key)
  client.reset_stats
  same(client.stats.values.first['get_hits'], '0', 'get_hits after reset_stats')
  holds(client.flush.all?, 'no flush')
  same(client.get(key), nil)
  client.set(key, 'y')
  client.flush(1)
  client.flush_all
  client.close
  # What is stored within the second of a flush may go with it.
  eventually('nothing stays on a new connection') { client.set(key, 'z') && client.get(key) == 'z' }
end

server, flag, label = ARGV
abort 'usage: dalli.rb HOST:PORT [--label TEXT]' unless server && [nil, '--label'].include?(flag)
failures = 0
CHECKS.each do |name, block|
  block.call(Dalli::Client.new(server, socket_timeout: 30, compress: false))
  puts "ok      #{label}#{name}"
rescue StandardError => e
  failures += 1
  puts "FAILED  #{label}#{name}: #{e.class}: #{e.message[0, 400]}"
end
exit(failures.zero? ? 0 : 1)
