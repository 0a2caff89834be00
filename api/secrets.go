// SPDX-License-Identifier: BSD-2-Clause

package api

func (s *Server) secretRoutes(r *routes) {}
