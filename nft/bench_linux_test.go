// SPDX-License-Identifier: BSD-2-Clause

package nft

import (
	"testing"

	"satld/network/nettest"
	"satld/redirect"
)

func BenchmarkApply100(b *testing.B) {
	l := newLab(b)
	r := manyRules(100)
	r.Subnets = []redirect.Subnet{l.subnet, l.foreign}
	for b.Loop() {
		nettest.Must(b, l.r.Apply(b.Context(), r))
	}
}

func BenchmarkAudit100(b *testing.B) {
	l := newLab(b)
	nettest.Must(b, l.r.Apply(b.Context(), manyRules(100)))
	for b.Loop() {
		if same, err := l.r.Audit(b.Context()); !same || err != nil {
			b.Fatal(same, err)
		}
	}
}
