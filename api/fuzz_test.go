// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
)

// FuzzServiceCreate: whatever the body, the answer is JSON and no panic.
func FuzzServiceCreate(f *testing.F) {
	for _, s := range []string{
		minimal, `null`, `[]`, `{}`, `{`, `{"TaskTemplate":null}`, webSpec("1"),
		inContainer(`"Healthcheck":{"Test":["CMD","x"],"Interval":-9223372036854775808,"Timeout":9223372036854775807,"Retries":2147483648}`),
		inContainer(`"Mounts":[{}],"Hosts":[""],"Ulimits":[{}],"Env":[""],"Configs":[null],"Secrets":[null]`),
		inContainer(`"Privileges":{"CredentialSpec":{}}`),
		inContainer(`"Image":"{{.Service.Name}}","Env":["A={{.Nope}}"]`),
		inTask(`"Resources":{"Limits":null,"Reservations":{"GenericResources":[null]}}`),
		inTask(`"Placement":{"Constraints":[""],"Preferences":[{}],"Platforms":[{}]}`),
		inTask(`"Networks":[{"Target":""}],"RestartPolicy":{"MaxAttempts":18446744073709551615}`),
		inService(`"EndpointSpec":{"Ports":[{"TargetPort":4294967295}]},"UpdateConfig":{"Order":"x"}`),
		inService(`"Mode":{"ReplicatedJob":{"MaxConcurrent":18446744073709551615}},"Networks":[{"Target":"bridge"}]`),
	} {
		f.Add(s)
	}
	fix := newFixture(f)
	f.Fuzz(func(t *testing.T, body string) {
		r := httptest.NewRequest("POST", "/v1.51/services/create", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		fix.server.ServeHTTP(w, r)
		var answer map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Fatalf("%q: %d %s: %v", body, w.Code, w.Body, err)
		}
		if message, _ := answer["message"].(string); w.Code == 500 && strings.HasPrefix(message, "internal error") || w.Code != 201 && message == "" {
			t.Errorf("%q: %d %s", body, w.Code, w.Body)
		}
	})
}
