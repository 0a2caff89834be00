// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"fmt"
	"net/http"
	"runtime"

	dockerapi "github.com/docker/docker/api"
	"github.com/docker/docker/api/types/versions"
)

// The API versions spoken: Docker's own range for docker v28.5.2.
const (
	maxVersion = dockerapi.DefaultVersion
	minVersion = dockerapi.MinSupportedAPIVersion
)

// versionPrefix is the optional first element of every path.
const versionPrefix = "/v{version:[0-9.]+}"

type versionKey struct{}

// negotiate gives the version a request is answered in: the one of its path,
// the newest when it names none. Too old or too new is refused in Docker's words.
func negotiate(asked string) (string, error) {
	switch {
	case asked == "":
		return maxVersion, nil
	case versions.LessThan(asked, minVersion):
		return "", errInvalid("client version %s is too old. Minimum supported API version is %s, please upgrade your client to a newer version", asked, minVersion)
	case versions.GreaterThan(asked, maxVersion):
		return "", errInvalid("client version %s is too new. Maximum supported API version is %s", asked, maxVersion)
	}
	return asked, nil
}

// apiVersion is the version that r is answered in.
func apiVersion(r *http.Request) string {
	if v, ok := r.Context().Value(versionKey{}).(string); ok {
		return v
	}
	return maxVersion
}

// since tells whether r is answered in version v or a newer one.
func since(r *http.Request, v string) bool {
	return versions.GreaterThanOrEqualTo(apiVersion(r), v)
}

// setHeaders sets what every answer carries. Builder-Version 1 makes the CLI
// use the classic build endpoint, which refuses with a clear text, rather
// than a BuildKit session.
func (s *Server) setHeaders(h http.Header) {
	h.Set("Api-Version", maxVersion)
	h.Set("Docker-Experimental", "false")
	h.Set("Ostype", runtime.GOOS)
	h.Set("Server", fmt.Sprintf("Docker/%s (%s)", s.cfg.Version, runtime.GOOS))
	h.Set("Builder-Version", "1")
}
