// gomemcache (Go, ASCII): every method that Debian's release has, many goroutines on one client.
//
//	gomemcache-battery HOST:PORT [--label TEXT]
//
// Prints `ok NAME` or `FAILED NAME: why` per check, and exits 1 if any failed.
//
// DeleteAll is left out: it waits for DELETED where every server says OK.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

const (
	// How long to wait for what takes a second or two.
	eventuallyFor = 20 * time.Second
	// How long to wait for a reply.
	reply      = 30 * time.Second
	goroutines = 16
	rounds     = 100
)

var (
	server  string
	label   string
	numbers int64
)

// newKey makes a key that no other check and no other run uses.
func newKey(what string) string {
	return fmt.Sprintf("go-%s-%d-%d", what, os.Getpid(), atomic.AddInt64(&numbers, 1))
}

func client() *memcache.Client {
	c := memcache.New(server)
	c.Timeout = reply
	return c
}

// wrong is what the checks below panic with.
type wrong string

// holds fails the check unless the condition is true.
func holds(condition bool, format string, args ...interface{}) {
	if !condition {
		panic(wrong(fmt.Sprintf(format, args...)))
	}
}

// fine fails the check if there is an error.
func fine(err error, what string) { holds(err == nil, "%s: %v", what, err) }

// gives fails the check unless the error is this one.
func gives(err, wanted error, what string) {
	holds(err == wanted, "%s: %v instead of %v", what, err, wanted)
}

// shown is the beginning of a value.
func shown(value []byte) string {
	if len(value) > 100 {
		return fmt.Sprintf("%q... (%d bytes)", value[:100], len(value))
	}
	return fmt.Sprintf("%q", value)
}

// stored fails the check unless the key has this value and these flags. Returns the item.
func stored(c *memcache.Client, key string, value []byte, flags uint32) *memcache.Item {
	item, err := c.Get(key)
	fine(err, "get")
	holds(item.Key == key, "key %q instead of %q", item.Key, key)
	holds(bytes.Equal(item.Value, value), "%s instead of %s", shown(item.Value), shown(value))
	holds(item.Flags == flags, "flags %d instead of %d", item.Flags, flags)
	return item
}

func absent(c *memcache.Client, key string) {
	_, err := c.Get(key)
	gives(err, memcache.ErrCacheMiss, "get")
}

func eventually(what string, condition func() bool) {
	for began := time.Now(); !condition(); time.Sleep(50 * time.Millisecond) {
		holds(time.Since(began) < eventuallyFor, "after %v: %s", eventuallyFor, what)
	}
}

// together runs the function in many goroutines and fails the check if any of them failed.
func together(body func(worker int)) {
	var wait sync.WaitGroup
	failures := make(chan interface{}, goroutines)
	for worker := 0; worker < goroutines; worker++ {
		wait.Add(1)
		go func(worker int) {
			defer wait.Done()
			defer func() {
				if failure := recover(); failure != nil {
					failures <- failure
				}
			}()
			body(worker)
		}(worker)
	}
	wait.Wait()
	close(failures)
	for failure := range failures {
		panic(failure)
	}
}

func everyByte() []byte {
	value := make([]byte, 256)
	for i := range value {
		value[i] = byte(i)
	}
	return value
}

func randomBytes(seed int64, size int) []byte {
	value := make([]byte, size)
	rand.New(rand.NewSource(seed)).Read(value)
	return value
}

var checks = []struct {
	name string
	body func(c *memcache.Client)
}{
	{"set, get, delete", func(c *memcache.Client) {
		key := newKey("set")
		absent(c, key)
		for i, value := range [][]byte{[]byte("text"), {}, everyByte(), []byte("\r\nEND\r\nVALUE x 0 1\r\n")} {
			flags := []uint32{0, 1, 1<<31 + 7, 1<<32 - 1}[i]
			fine(c.Set(&memcache.Item{Key: key, Value: value, Flags: flags}), "set")
			stored(c, key, value, flags)
		}
		fine(c.Delete(key), "delete")
		gives(c.Delete(key), memcache.ErrCacheMiss, "delete again")
		absent(c, key)
	}},
	{"values of every size class", func(c *memcache.Client) {
		for i, size := range []int{1, 2, 63, 64, 1023, 1024, 1025, 1400, 1472, 9000, 65535, 65536, 500000, 1000000} {
			key, value := newKey("size"), randomBytes(int64(i), size)
			fine(c.Set(&memcache.Item{Key: key, Value: value}), "set")
			stored(c, key, value, 0)
		}
	}},
	{"what is too large is refused", func(c *memcache.Client) {
		key := newKey("large")
		holds(c.Set(&memcache.Item{Key: key, Value: make([]byte, 1100000)}) != nil, "1.1 MB were stored")
		absent(c, key)
		fine(c.Set(&memcache.Item{Key: key, Value: []byte("x")}), "set after it")
		stored(c, key, []byte("x"), 0)
	}},
	{"keys of 250 bytes", func(c *memcache.Client) {
		key := newKey("long")
		key += strings.Repeat("k", 250-len(key))
		fine(c.Set(&memcache.Item{Key: key, Value: []byte("x")}), "set")
		stored(c, key, []byte("x"), 0)
		gives(c.Set(&memcache.Item{Key: key + "k"}), memcache.ErrMalformedKey, "a key of 251 bytes")
		gives(c.Set(&memcache.Item{Key: "a b"}), memcache.ErrMalformedKey, "a key with a space")
	}},
	{"add, replace", func(c *memcache.Client) {
		key := newKey("add")
		gives(c.Replace(&memcache.Item{Key: key, Value: []byte("0")}), memcache.ErrNotStored, "replace of nothing")
		fine(c.Add(&memcache.Item{Key: key, Value: []byte("1"), Flags: 5}), "add")
		gives(c.Add(&memcache.Item{Key: key, Value: []byte("2")}), memcache.ErrNotStored, "add again")
		stored(c, key, []byte("1"), 5)
		fine(c.Replace(&memcache.Item{Key: key, Value: everyByte(), Flags: 6}), "replace")
		stored(c, key, everyByte(), 6)
	}},
	{"compare and swap", func(c *memcache.Client) {
		key := newKey("cas")
		fine(c.Set(&memcache.Item{Key: key, Value: []byte("1")}), "set")
		first, second := stored(c, key, []byte("1"), 0), stored(c, key, []byte("1"), 0)
		first.Value, second.Value = everyByte(), []byte("3")
		fine(c.CompareAndSwap(first), "the first")
		gives(c.CompareAndSwap(second), memcache.ErrCASConflict, "the second")
		last := stored(c, key, everyByte(), 0)
		fine(c.Delete(key), "delete")
		gives(c.CompareAndSwap(last), memcache.ErrCacheMiss, "where nothing is")
		absent(c, key)
	}},
	{"multi-get", func(c *memcache.Client) {
		values := map[string][]byte{}
		var keys []string
		for i := 0; i < 500; i++ {
			key, value := newKey("multi"), randomBytes(int64(i), i*7%2000)
			values[key] = value
			fine(c.Set(&memcache.Item{Key: key, Value: value, Flags: uint32(i)}), "set")
			keys = append(keys, key, newKey("absent"))
		}
		items, err := c.GetMulti(keys)
		fine(err, "get of many")
		holds(len(items) == len(values), "%d items instead of %d", len(items), len(values))
		for key, value := range values {
			holds(items[key] != nil && bytes.Equal(items[key].Value, value), "%s has a wrong value", key)
			items[key].Value = []byte("swapped")
			fine(c.CompareAndSwap(items[key]), "compare and swap")
		}
		items, err = c.GetMulti([]string{newKey("absent"), newKey("absent")})
		fine(err, "get of nothing")
		holds(len(items) == 0, "%d items instead of none", len(items))
	}},
	{"increment, decrement", func(c *memcache.Client) {
		key := newKey("counter")
		_, err := c.Increment(key, 1)
		gives(err, memcache.ErrCacheMiss, "increment of nothing")
		_, err = c.Decrement(key, 1)
		gives(err, memcache.ErrCacheMiss, "decrement of nothing")
		fine(c.Set(&memcache.Item{Key: key, Value: []byte("10")}), "set")
		type change struct {
			change        func(string, uint64) (uint64, error)
			delta, wanted uint64
		}
		steps := []change{{c.Increment, 5, 15}, {c.Decrement, 7, 8}, {c.Decrement, 100, 0}, {c.Increment, 2, 2}}
		// A number that becomes shorter keeps its length, in blanks.
		stays := "2 "
		// memcached 1.6.18 refuses a number of 2^63 and more if a minus sign stands anywhere behind it in memory.
		if !strings.HasPrefix(label, "memcached") {
			stays = fmt.Sprintf("%-20s", "2")
			steps = append(steps, change{c.Increment, 1<<64 - 3, 1<<64 - 1}, change{c.Increment, 3, 2})
		}
		for _, step := range steps {
			got, err := step.change(key, step.delta)
			fine(err, "arithmetic")
			holds(got == step.wanted, "%d instead of %d", got, step.wanted)
		}
		// A shorter number over a longer one leaves spaces.
		stored(c, key, []byte(stays), 0)
		fine(c.Set(&memcache.Item{Key: key, Value: []byte("text")}), "set")
		_, err = c.Increment(key, 1)
		holds(err != nil && strings.Contains(err.Error(), "non-numeric"), "increment of a text: %v", err)
		stored(c, key, []byte("text"), 0)
	}},
	{"touch and expiry", func(c *memcache.Client) {
		kept, gone, past, touched := newKey("kept"), newKey("gone"), newKey("past"), newKey("touched")
		gives(c.Touch(kept, 10), memcache.ErrCacheMiss, "touch of nothing")
		for _, key := range []string{kept, touched} {
			fine(c.Set(&memcache.Item{Key: key, Value: everyByte(), Expiration: 1000}), "set")
		}
		fine(c.Set(&memcache.Item{Key: gone, Value: []byte("1"), Expiration: 1}), "set")
		fine(c.Set(&memcache.Item{Key: past, Value: []byte("1"), Expiration: -1}), "set")
		absent(c, past)
		fine(c.Touch(kept, int32(time.Now().Unix())+10000), "touch with a time of day")
		fine(c.Touch(touched, 1), "touch")
		eventually("items are still there", func() bool {
			items, err := c.GetMulti([]string{gone, touched})
			fine(err, "get")
			return len(items) == 0
		})
		stored(c, kept, everyByte(), 0)
	}},
	{"sixteen goroutines on one client", func(c *memcache.Client) {
		counter, shared := newKey("counter"), newKey("shared")
		fine(c.Set(&memcache.Item{Key: counter, Value: []byte("0")}), "set")
		fine(c.Set(&memcache.Item{Key: shared, Value: nil}), "set")
		together(func(worker int) {
			mine := newKey("mine")
			for i := 0; i < rounds; i++ {
				value := randomBytes(int64(worker*rounds+i), i*37)
				fine(c.Set(&memcache.Item{Key: mine, Value: value}), "set")
				stored(c, mine, value, 0)
				_, err := c.Increment(counter, 1)
				fine(err, "increment")
			}
			for done := false; !done; {
				item, err := c.Get(shared)
				fine(err, "get")
				item.Value = append(item.Value, byte(worker))
				err = c.CompareAndSwap(item)
				holds(err == nil || err == memcache.ErrCASConflict, "compare and swap: %v", err)
				done = err == nil
			}
		})
		total, err := c.Increment(counter, 0)
		fine(err, "increment")
		holds(total == goroutines*rounds, "%d instead of %d", total, goroutines*rounds)
		item, err := c.Get(shared)
		fine(err, "get")
		seen := map[byte]bool{}
		for _, worker := range item.Value {
			seen[worker] = true
		}
		holds(len(item.Value) == goroutines && len(seen) == goroutines, "%v: a swap was lost", item.Value)
	}},
	{"a timeout, and the client goes on", func(c *memcache.Client) {
		// Nobody can answer within a nanosecond.
		key := newKey("timeout")
		fine(c.Set(&memcache.Item{Key: key, Value: []byte("x")}), "set")
		c.Timeout = time.Nanosecond
		_, err := c.Get(key)
		var network net.Error
		var connecting *memcache.ConnectTimeoutError
		holds(errors.As(err, &network) && network.Timeout() || errors.As(err, &connecting), "%v instead of a timeout", err)
		c.Timeout = reply
		for i := 0; i < 20; i++ {
			stored(c, key, []byte("x"), 0)
		}
	}},
	{"flush", func(c *memcache.Client) {
		key := newKey("flush")
		fine(c.Set(&memcache.Item{Key: key, Value: []byte("x")}), "set")
		fine(c.FlushAll(), "flush")
		absent(c, key)
	}},
}

// run is one check's outcome.
func run(body func(c *memcache.Client)) (why interface{}) {
	defer func() { why = recover() }()
	body(client())
	return nil
}

func main() {
	if len(os.Args) != 2 && (len(os.Args) != 4 || os.Args[2] != "--label") {
		fmt.Fprintln(os.Stderr, "usage: gomemcache-battery HOST:PORT [--label TEXT]")
		os.Exit(2)
	}
	server = os.Args[1]
	failures := 0
	if len(os.Args) == 4 {
		label = os.Args[3]
	}
	for _, check := range checks {
		if why := run(check.body); why != nil {
			failures++
			fmt.Printf("FAILED  %s%s: %v\n", label, check.name, why)
		} else {
			fmt.Printf("ok      %s%s\n", label, check.name)
		}
	}
	if failures > 0 {
		os.Exit(1)
	}
}
