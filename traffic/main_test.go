// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package traffic

import (
	"testing"

	"satld/network/nettest"
)

func TestMain(m *testing.M) { nettest.Main(m) }
