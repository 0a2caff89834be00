// SPDX-License-Identifier: BSD-2-Clause

package nft

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Warnings tells what on this host keeps the networks with the bridges from
// being reached or from reaching out, in words for the operator. It only
// reads: the FORWARD chain that iptables and dockerd use, asked for by name.
func (r *Redirector) Warnings(ctx context.Context, bridges []string) []string {
	text, err := r.nft(ctx, "", "-j", "list", "chain", "ip", "filter", "FORWARD")
	dropped := err == nil && forwardDrops([]byte(text))
	where := "iptables"
	if !dropped && legacyDrops(ctx) {
		dropped, where = true, "iptables-legacy"
	}
	if !dropped {
		return nil
	}
	chain := "FORWARD"
	var allowed string
	if out, err := r.nft(ctx, "", "list", "chain", "ip", "filter", "FORWARD"); err == nil {
		allowed = out
	}
	if out, err := r.nft(ctx, "", "list", "chain", "ip", "filter", "DOCKER-USER"); err == nil {
		chain, allowed = "DOCKER-USER", allowed+out
	}
	var out []string
	for _, b := range bridges {
		if strings.Contains(allowed, fmt.Sprintf("iifname %q", b)) && strings.Contains(allowed, fmt.Sprintf("oifname %q", b)) {
			continue
		}
		out = append(out, fmt.Sprintf("the host's FORWARD chain drops what it does not know (dockerd sets this): tasks on %s have no way out and other hosts no way in until you run: %s -I %s -i %s -j ACCEPT; %s -I %s -o %s -j ACCEPT",
			b, where, chain, b, where, chain, b))
	}
	return out
}

func forwardDrops(text []byte) bool {
	var l listing
	if json.Unmarshal(text, &l) != nil {
		return false
	}
	for _, o := range l.Nftables {
		if o.Chain != nil && o.Chain.Hook == "forward" && o.Chain.Policy == "drop" {
			return true
		}
	}
	return false
}

// legacyDrops asks the older iptables, whose rules nft does not see, and only
// where it is in use.
func legacyDrops(ctx context.Context) bool {
	names, err := os.ReadFile("/proc/net/ip_tables_names")
	if err != nil || !strings.Contains(string(names), "filter") {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "iptables-legacy", "-S", "FORWARD").Output()
	return err == nil && strings.Contains(string(out), "-P FORWARD DROP")
}
