// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"bytes"
	"net/http"
	"strconv"
	"time"
)

// backup is all that the cluster is, as an archive. It is answered whole, so
// that a client can tell one that was cut short by its length.
func (s *Server) backup(w http.ResponseWriter, _ *http.Request) error {
	var whole bytes.Buffer
	if err := s.cfg.Cluster.Backup(&whole, time.Now()); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/x-tar")
	w.Header().Set("Content-Length", strconv.Itoa(whole.Len()))
	_, err := whole.WriteTo(w)
	return err
}
