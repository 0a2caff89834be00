// SPDX-License-Identifier: BSD-2-Clause

// Package satld is the root of the module and holds no code: cmd/satld is the
// daemon, cmd/satl the client, docs/architecture.md says how it is built. The
// tests here keep the layout as it is described there.
package satld
