// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/containerd/errdefs"
)

// Sizes of a network: a pool is cut into 16 blocks, but into none smaller than
// a /24, which is what people expect of a network; a pool of a /24 or less is
// one block.
const (
	blockSplit   = 4
	smallestCut  = 24
	smallestPool = 30 // gateway and one container
)

// CheckPool refuses a pool that cannot hold one network.
func CheckPool(pool netip.Prefix) error {
	switch {
	case !pool.IsValid() || !pool.Addr().Is4():
		return fmt.Errorf("network pool %s: not an IPv4 prefix such as 10.88.0.0/16: %w", pool, errdefs.ErrInvalidArgument)
	case pool != pool.Masked():
		return fmt.Errorf("network pool %s: has bits set beyond its length; did you mean %s?: %w", pool, pool.Masked(), errdefs.ErrInvalidArgument)
	case pool.Bits() > smallestPool || pool.Bits() < 8:
		return fmt.Errorf("network pool %s: the length must be between 8 and %d: %w", pool, smallestPool, errdefs.ErrInvalidArgument)
	}
	return nil
}

// Blocks cuts a pool into the subnets that networks get, in order. A /16 gives
// sixteen /20, a /22 four /24, a /24 or longer is one block.
func Blocks(pool netip.Prefix) []netip.Prefix {
	bits := max(pool.Bits(), min(pool.Bits()+blockSplit, smallestCut))
	count := 1 << (bits - pool.Bits())
	blocks := make([]netip.Prefix, 0, count)
	base := toUint(pool.Masked().Addr())
	for i := range count {
		blocks = append(blocks, netip.PrefixFrom(fromUint(base+uint32(i)<<(32-bits)), bits))
	}
	return blocks
}

// freeBlock is the first block that overlaps none of the taken prefixes.
func freeBlock(pool netip.Prefix, taken []netip.Prefix) (netip.Prefix, error) {
	blocks := Blocks(pool)
next:
	for _, b := range blocks {
		for _, t := range taken {
			if b.Overlaps(t) {
				continue next
			}
		}
		return b, nil
	}
	if len(blocks) == 1 {
		return netip.Prefix{}, fmt.Errorf("no subnet left: the pool %s is too small for more than the node's own network; start satld with a shorter --network-pool (a /16 holds 16 networks) or give the network a subnet of its own: %w", pool, errdefs.ErrResourceExhausted)
	}
	return netip.Prefix{}, fmt.Errorf("no subnet left: all %d blocks of the pool %s are in use; remove a network or give this one a subnet of its own: %w", len(blocks), pool, errdefs.ErrResourceExhausted)
}

// gatewayOf is the bridge's own address: the first of the subnet.
func gatewayOf(subnet netip.Prefix) netip.Addr { return subnet.Masked().Addr().Next() }

// lastOf is the subnet's broadcast address.
func lastOf(subnet netip.Prefix) netip.Addr {
	return fromUint(toUint(subnet.Masked().Addr()) | (1<<(32-subnet.Bits()) - 1))
}

// pick chooses an address of the subnet round-robin: the first one after
// cursor that nobody has and that was not given back less than reuse ago. When
// only such ones are left, wait says how long until the first is free again;
// an error means that all are taken.
func pick(subnet netip.Prefix, cursor netip.Addr, taken map[netip.Addr]bool, released map[netip.Addr]time.Time, now time.Time, reuse time.Duration) (addr netip.Addr, wait time.Duration, err error) {
	first, last := toUint(gatewayOf(subnet))+1, toUint(lastOf(subnet))-1
	if last < first {
		return netip.Addr{}, 0, fmt.Errorf("subnet %s has no room for a container: %w", subnet, errdefs.ErrResourceExhausted)
	}
	start := first
	if cursor.IsValid() && subnet.Contains(cursor) {
		if c := toUint(cursor) + 1; c >= first && c <= last {
			start = c
		}
	}
	count := last - first + 1
	wait = -1
	for i := range count {
		a := fromUint(first + (start-first+i)%count)
		if taken[a] {
			continue
		}
		if at, held := released[a]; held {
			// A clock that was set back must not hold an address for longer.
			if left := reuse - now.Sub(at); left > 0 {
				left = min(left, reuse)
				if wait < 0 || left < wait {
					wait = left
				}
				continue
			}
		}
		return a, 0, nil
	}
	if wait >= 0 {
		return netip.Addr{}, wait, nil
	}
	return netip.Addr{}, 0, fmt.Errorf("all %d addresses of subnet %s are in use: %w", count, subnet, errdefs.ErrResourceExhausted)
}

// macOf derives a link's address from its IP address, as Docker does: after an
// address was given to another container, a neighbour's cache still holds.
func macOf(a netip.Addr) string {
	b := a.As4()
	return fmt.Sprintf("02:42:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3])
}

func toUint(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

func fromUint(v uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], v)
	return netip.AddrFrom4(b)
}
