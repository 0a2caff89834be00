// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
)

// sampleKey is a key in the sample, with its default.
var sampleKey = regexp.MustCompile(`(?m)^# ([a-z_]+ = .*|\[[a-z_]+\])$`)

// TestSampleConfiguration: the operator's sample has every key with its
// default on FreeBSD, and loads as it is and with every key in force.
func TestSampleConfiguration(t *testing.T) {
	data, err := os.ReadFile("../../packaging/freebsd/satld.toml.sample")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range data {
		if b != '\n' && (b < ' ' || b > '~') {
			t.Fatalf("byte %#x is no printable ASCII", b)
		}
	}
	asIs := defaults("freebsd")
	if err := asIs.readFile(writeConfig(t, string(data))); err != nil || asIs != defaults("freebsd") {
		t.Errorf("as it is: %v, %+v", err, asIs)
	}
	inForce := sampleKey.ReplaceAllString(string(data), "$1")
	var all Config
	if err := all.readFile(writeConfig(t, inForce)); err != nil || all != defaults("freebsd") {
		t.Errorf("with every key in force: %v\ngot  %+v\nwant %+v", err, all, defaults("freebsd"))
	}
	keys := map[string]any{}
	if err := toml.Unmarshal([]byte(inForce), &keys); err != nil {
		t.Fatal(err)
	}
	config := reflect.TypeFor[Config]()
	for i := range config.NumField() {
		key := strings.Split(config.Field(i).Tag.Get("toml"), ",")[0]
		if _, ok := keys[key]; !ok && key != "-" {
			t.Errorf("key %s is not in the sample", key)
		}
	}
}
