package v8

import (
	"regexp"
	"strings"
	"testing"
)

func TestInspectorPause(t *testing.T) {
	iso := newIso(t, Options{})
	c := iso.NewContext(false)
	var got []string
	iso.Inspector = func(m string) { got = append(got, m) }
	iso.InspectorOpen(c)
	iso.InspectorSend(`{"id":1,"method":"Debugger.enable"}`)
	step := 0
	iso.Pause = func() {
		step++
		switch step {
		case 1:
			var frame string
			for _, g := range got {
				if strings.Contains(g, `"Debugger.paused"`) {
					frame = regexp.MustCompile(`"callFrameId":"([^"]+)"`).FindStringSubmatch(g)[1]
				}
			}
			iso.InspectorSend(`{"id":2,"method":"Debugger.evaluateOnCallFrame","params":{"callFrameId":"` + frame + `","expression":"local*2"}}`)
		case 2:
			iso.InspectorSend(`{"id":3,"method":"Debugger.resume"}`)
		}
	}
	v := must[Value](t)(iso.Eval(c, `(()=>{ const local=21; debugger; return "resumed" })()`, "d.js", 0))
	ok := false
	for _, g := range got {
		ok = ok || strings.Contains(g, `"id":2`) && strings.Contains(g, `"value":42`)
	}
	if !ok || v.String() != "resumed" || step != 2 {
		t.Fatal(v, step, got)
	}
}
