// SPDX-License-Identifier: BSD-2-Clause

package nft

import (
	"encoding/json"
	"fmt"
	"slices"
)

// listing is what we read of `nft -j list table` (libnftables-json(5)).
type listing struct {
	Nftables []struct {
		Chain *struct {
			Name   string `json:"name"`
			Type   string `json:"type"`
			Hook   string `json:"hook"`
			Prio   int    `json:"prio"`
			Policy string `json:"policy"`
		} `json:"chain"`
		Rule *struct {
			Chain   string `json:"chain"`
			Comment string `json:"comment"`
		} `json:"rule"`
	} `json:"nftables"`
}

// holds tells whether a listing has exactly the rules that were written: the
// base chains where they belong, and in each chain the same rules in the same
// order, known by the comments that hash their text. Nothing in a rule can be
// changed without replacing it.
func holds(text []byte, written []rule) (bool, error) {
	var l listing
	if err := json.Unmarshal(text, &l); err != nil {
		return false, fmt.Errorf("read nft's listing: %w", err)
	}
	want, got := make(map[string][]string), make(map[string][]string)
	for _, r := range written {
		want[r.chain] = append(want[r.chain], r.comment())
	}
	found := make(map[baseChain]bool)
	for _, o := range l.Nftables {
		if r := o.Rule; r != nil {
			got[r.Chain] = append(got[r.Chain], r.Comment)
		}
		if c := o.Chain; c != nil && c.Policy == "accept" {
			found[baseChain{c.Name, c.Type, c.Hook, c.Prio}] = true
		}
	}
	for _, c := range baseChains {
		if !found[c] {
			return false, nil
		}
	}
	for chain := range got {
		if !slices.Equal(want[chain], got[chain]) {
			return false, nil
		}
	}
	for chain := range want {
		if !slices.Equal(want[chain], got[chain]) {
			return false, nil
		}
	}
	return true, nil
}
