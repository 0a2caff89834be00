// SPDX-License-Identifier: BSD-2-Clause

package fakefreebsd

import (
	"testing"

	"satld/network/nettest"
)

func TestMain(m *testing.M) { nettest.Main(m) }
