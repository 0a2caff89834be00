// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/swarm"
	"github.com/docker/go-events"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"
)

func ofSize(n int) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", n)))
}

// Secrets and configs are alike but for their size and for who is told what is
// in them.
func TestSecretsAndConfigs(t *testing.T) {
	for kind, most := range map[string]int{"secret": 500 << 10, "config": 1000 << 10} {
		t.Run(kind, func(t *testing.T) {
			f := newFixture(t)
			path := "/" + kind + "s"
			create := func(name string) string {
				t.Helper()
				var out struct{ ID string }
				body := f.must(t, 201, "POST", path+"/create", fmt.Sprintf(`{"Name":%q,"Labels":{"a":"b"},"Data":"aHVudGVyMg=="}`, name))
				if err := json.Unmarshal([]byte(body), &out); err != nil || out.ID == "" {
					t.Fatalf("%v: %s", err, body)
				}
				return out.ID
			}
			if body := f.must(t, 200, "GET", path, ""); strings.TrimSpace(body) != "[]" {
				t.Errorf("%s", body)
			}
			id := create("password")
			create("other.1")
			for _, ref := range []string{id, "password", id[:12]} {
				body := f.must(t, 200, "GET", path+"/"+ref, "")
				var got swarm.Secret // a config has the same members
				if err := json.Unmarshal([]byte(body), &got); err != nil {
					t.Fatal(err)
				}
				if got.ID != id || got.Spec.Name != "password" || got.Spec.Labels["a"] != "b" || got.Version.Index == 0 || got.CreatedAt.IsZero() {
					t.Errorf("%s: %s", ref, body)
				}
				if told := strings.Contains(body, "aHVudGVyMg"); told != (kind == "config") {
					t.Errorf("what is in it: %s", body)
				}
			}
			for query, want := range map[string]int{
				"": 2, `?filters={"name":["pass"]}`: 1, `?filters={"name":["x"]}`: 0, `?filters={"label":["a=b"]}`: 2,
				`?filters={"label":["a=c"]}`: 0, `?filters={"id":["` + id[:10] + `"]}`: 1,
			} {
				body := f.must(t, 200, "GET", path+query, "")
				var list []swarm.Secret
				if err := json.Unmarshal([]byte(body), &list); err != nil || len(list) != want {
					t.Errorf("%s: %v: %s", query, err, body)
				}
				if kind == "secret" && strings.Contains(body, "aHVudGVyMg") {
					t.Errorf("told: %s", body)
				}
			}
			f.refused(t, 400, "invalid filter 'x'", "GET", path+`?filters={"x":["y"]}`, "")

			refuse := func(status int, says, body string) {
				t.Helper()
				f.refused(t, status, says, "POST", path+"/create", body)
			}
			refuse(409, kind+" password already exists", `{"Name":"password","Data":"eA=="}`)
			refuse(400, "name must be provided", `{"Data":"eA=="}`)
			refuse(400, "invalid name, only 64", `{"Name":"a b","Data":"eA=="}`)
			refuse(400, "invalid name, only 64", `{"Name":"`+strings.Repeat("a", 65)+`","Data":"eA=="}`)
			size := fmt.Sprintf("%s data must be larger than 0 and less than %d bytes", kind, most)
			refuse(400, size, `{"Name":"empty"}`)
			refuse(400, size, `{"Name":"large","Data":"`+ofSize(most)+`"}`)
			f.must(t, 201, "POST", path+"/create", `{"Name":"most","Data":"`+ofSize(most-1)+`"}`)
			refuse(501, `template driver "python" of a `+kind+` is not supported`, `{"Name":"t","Data":"eA==","Templating":{"Name":"python"}}`)
			refuse(501, "golang has none", `{"Name":"t","Data":"eA==","Templating":{"Name":"golang","Options":{"a":"b"}}}`)
			f.must(t, 201, "POST", path+"/create", `{"Name":"t","Data":"eA==","Templating":{"Name":"golang"}}`)
			if kind == "secret" {
				refuse(501, "secrets of a driver are not supported", `{"Name":"d","Driver":{"Name":"vault"}}`)
			}

			f.updateLabels(t, kind, path, id)

			member := strings.ToUpper(kind[:1]) + kind[1:]
			for ref, says := range map[string]string{
				`{"%[1]sName":"password","File":{"Name":"p"}}`:                                "malformed " + kind + " reference",
				`{"%[1]sID":"nobody","%[1]sName":"password","File":{"Name":"p"}}`:             kind + " not found: password",
				fmt.Sprintf(`{"%%[1]sID":%q,"%%[1]sName":"another","File":{"Name":"p"}}`, id): kind + " not found: another",
			} {
				f.refused(t, 400, says, "POST", "/services/create", inContainer(fmt.Sprintf(`"%[1]ss":[`+ref+`]`, member)))
			}
			service, _ := f.create(t, inContainer(fmt.Sprintf(
				`"%[1]ss":[{"%[1]sID":%[2]q,"%[1]sName":"password","File":{"Name":"p","UID":"7","GID":"8","Mode":288}}]`, member, id)))
			body := f.must(t, 200, "GET", "/services/"+service, "")
			if !strings.Contains(body, `{"File":{"Name":"p","UID":"7","GID":"8","Mode":288},`) {
				t.Errorf("the service is shown without it: %s", body)
			}
			f.refused(t, 400, kind+" 'password' is in use by the following service: web", "DELETE", path+"/password", "")
			f.must(t, 200, "DELETE", "/services/"+service, "")
			f.must(t, 204, "DELETE", path+"/password", "")
			f.refused(t, 404, kind+" password not found", "GET", path+"/password", "")
			f.refused(t, 404, kind+" password not found", "DELETE", path+"/password", "")
			f.refused(t, 404, kind+" no.such not found", "POST", path+"/no.such/update?version=1", "{}")
		})
	}
}

// updateLabels: labels change, and nothing else.
func (f *fixture) updateLabels(t *testing.T, kind, path, id string) {
	t.Helper()
	version := func() uint64 {
		var got swarm.Secret
		if err := json.Unmarshal([]byte(f.must(t, 200, "GET", path+"/"+id, "")), &got); err != nil {
			t.Fatal(err)
		}
		return got.Version.Index
	}
	at := func(v uint64) string { return fmt.Sprintf("%s/%s/update?version=%d", path, id, v) }
	before := version()
	f.must(t, 200, "POST", at(before), `{"Name":"password","Labels":{"c":"d"}}`)
	if body := f.must(t, 200, "GET", path+"/"+id, ""); !strings.Contains(body, `"Labels":{"c":"d"}`) {
		t.Errorf("%s", body)
	}
	f.refused(t, 500, "update out of sequence", "POST", at(before), `{"Name":"password"}`)
	f.must(t, 200, "POST", at(version()), `{"Name":"password","Labels":{"e":"f"},"Data":"aHVudGVyMg=="}`) // as `stack deploy` does
	f.refused(t, 400, "only updates to Labels are allowed", "POST", at(version()), `{"Name":"password","Data":"eA=="}`)
	f.refused(t, 400, "only updates to Labels are allowed", "POST", at(version()), `{"Name":"other"}`)
	f.refused(t, 400, "invalid "+kind+" version", "POST", path+"/"+id+"/update", `{"Name":"password"}`)
	// What is in it stayed as it was.
	f.cluster.store.View(func(tx store.ReadTx) {
		data := ""
		if s := store.GetSecret(tx, id); s != nil {
			data = string(s.Spec.Data)
		}
		if c := store.GetConfig(tx, id); c != nil {
			data = string(c.Spec.Data)
		}
		if data != "hunter2" {
			t.Errorf("%q", data)
		}
	})
}

// The order in which a client sends references is none of the spec's: the
// docker CLI sends two of one secret in any.
func TestReferencesAreOrdered(t *testing.T) {
	var stored []string
	for _, order := range [][2]string{{"a", "b"}, {"b", "a"}} {
		f := newFixture(t)
		s := into[swarm.SecretCreateResponse](t, f.must(t, 201, "POST", "/secrets/create", `{"Name":"s","Data":"eA=="}`))
		ref := func(target string) string {
			return fmt.Sprintf(`{"SecretID":%q,"SecretName":"s","File":{"Name":%q}}`, s.ID, target)
		}
		id, _ := f.create(t, inContainer(`"Secrets":[`+ref(order[0])+`,`+ref(order[1])+`]`))
		for _, r := range f.service(t, id).Spec.TaskTemplate.ContainerSpec.Secrets {
			stored = append(stored, r.File.Name)
		}
	}
	if strings.Join(stored, " ") != "a b a b" {
		t.Errorf("%v", stored)
	}
}

func TestSecretsOnAWorker(t *testing.T) {
	f := newFixture(t)
	f.server.cfg.Cluster = worker{f.cluster}
	for _, kind := range []string{"secret", "config"} {
		path := "/" + kind + "s"
		for _, r := range [][2]string{{"GET", path}, {"POST", path + "/create"}, {"GET", path + "/x"}, {"DELETE", path + "/x"}, {"POST", path + "/x/update?version=1"}} {
			f.refused(t, 503, "This node is not a swarm manager. Worker nodes can't be used to view or modify cluster state.", r[0], r[1], `{}`)
		}
	}
}

func TestSecretEvents(t *testing.T) {
	s := &api.Secret{ID: "s", Spec: api.SecretSpec{Annotations: api.Annotations{Name: "password"}, Data: []byte("hunter2")}}
	c := &api.Config{ID: "c", Spec: api.ConfigSpec{Annotations: api.Annotations{Name: "conf"}, Data: []byte("hunter2")}}
	for _, x := range []struct {
		change events.Event
		want   string
	}{
		{api.EventCreateSecret{Secret: s}, "secret create s password"}, {api.EventUpdateSecret{Secret: s}, "secret update s password"},
		{api.EventDeleteSecret{Secret: s}, "secret remove s password"}, {api.EventCreateConfig{Config: c}, "config create c conf"},
		{api.EventUpdateConfig{Config: c}, "config update c conf"}, {api.EventDeleteConfig{Config: c}, "config remove c conf"},
	} {
		m, ok := storeEvent(x.change)
		if got := fmt.Sprint(m.Type, " ", m.Action, " ", m.Actor.ID, " ", m.Actor.Attributes["name"]); !ok || got != x.want || len(m.Actor.Attributes) != 1 {
			t.Errorf("%s, want %s: %+v", got, x.want, m)
		}
	}
}

// secretsByCLI is what the docker CLI makes of secrets and configs.
func (f *cliFixture) secretsByCLI(t *testing.T, has func(out string, words ...string)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"secret", "config"} {
		f.docker(t, 0, kind, "create", "-l", "a=b", "x", file)
		has(f.docker(t, 0, kind, "ls", "--filter", "label=a=b"), "x", "ago")
		has(f.docker(t, 0, kind, "inspect", "--pretty", "x"), "x", "a=b")
		has(f.docker(t, 1, kind, "create", "x", file), kind+" x already exists")
	}
	has(f.docker(t, 0, "service", "create", "--name", "given", "-d", "--no-resolve-image", "--secret", "source=x,target=/a,mode=0400",
		"--config", "x", "bb:1"))
	has(f.docker(t, 0, "service", "inspect", "given"), `"Mode": 256`, `"Name": "/a"`, `"ConfigName": "x"`)
	has(f.docker(t, 1, "secret", "rm", "x"), "secret 'x' is in use by the following service: given")
	f.docker(t, 0, "service", "update", "-d", "--no-resolve-image", "--secret-rm", "x", "--config-rm", "x", "given")
	has(f.docker(t, 0, "secret", "rm", "x"), "x")
	has(f.docker(t, 0, "config", "rm", "x"), "x")
	f.docker(t, 0, "service", "rm", "given")
}
