// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// A client that sends all of a large body before it reads anything has its
// answer, and its connection goes on.
func TestLargeBodyIsAnswered(t *testing.T) {
	f := newSocketFixture(t, "")
	body := `{"Name":"` + strings.Repeat("x", 2*maxBody) + `"}`
	for _, c := range []struct {
		path string
		code int
		want string
	}{
		{"/services/create", 413, "request body is larger than 4194304 bytes"},
		{"/networks/create", 413, "request body is larger than 4194304 bytes"},
		{"/v1.51/exec/none/start", 413, "request body is larger than 4194304 bytes"},
		{"/v1.51/build", 501, "building images is not supported"},
		{"/v1.23/services/create", 400, "too old"},
		{"/nothing", 404, "page not found"},
	} {
		conn := f.dial(t)
		answers := bufio.NewReader(conn)
		for range 2 {
			_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
				c.path, len(body), body)
			if err != nil {
				t.Fatalf("%s: the body is not read: %v", c.path, err)
			}
			resp, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatalf("%s: no answer: %v", c.path, err)
			}
			text, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != c.code || !strings.Contains(string(text), c.want) {
				t.Errorf("%s: %d %s %v, want %d %s", c.path, resp.StatusCode, text, err, c.code, c.want)
			}
		}
	}
}

// A client that asks before it sends a large body is answered, and sends none.
func TestExpectIsAnsweredAtOnce(t *testing.T) {
	f := newSocketFixture(t, "")
	conn := f.dial(t)
	if _, err := io.WriteString(conn, "POST /build HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9999999\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(conn) // to its end: the daemon waits for no body
	if err != nil || !strings.HasPrefix(string(rest), "HTTP/1.1 501 ") {
		t.Errorf("%s, %v", rest, err)
	}
}
