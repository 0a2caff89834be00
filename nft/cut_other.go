// SPDX-License-Identifier: BSD-2-Clause

//go:build !linux

package nft

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"satld/redirect"
)

// Cut needs Linux, as all of nftables does.
func (r *Redirector) Cut(context.Context, []redirect.Flow) error {
	return fmt.Errorf("cut flows: nftables is Linux's: %w", errdefs.ErrNotImplemented)
}
