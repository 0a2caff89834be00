// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"

	"satld/redirect"
)

// redirectOff writes nothing: ports are published and tasks routed by
// somebody else (--redirect off).
type redirectOff struct{}

func (redirectOff) Apply(context.Context, redirect.Rules) error { return nil }
func (redirectOff) Audit(context.Context) (bool, error)         { return true, nil }
func (redirectOff) Cut(context.Context, []redirect.Flow) error  { return nil }
func (redirectOff) Clear(context.Context) error                 { return nil }
