package bucket

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
)

// object is a JSON object whose values are not looked at yet.
type object map[string]json.RawMessage

func parseObject(body []byte) (object, error) {
	var o object
	if err := json.Unmarshal(body, &o); err != nil {
		return nil, err
	}
	if o == nil {
		return nil, errors.New("null is no object")
	}
	return o, nil
}

// leftover is what decoding a record into a struct loses: fields that the
// struct, or a struct inside it, does not have. Lists and maps belong to the
// caller altogether.
type leftover struct {
	fields object
	inner  map[string]*leftover // by the name of a known field
}

func leftoverOf[T any](body []byte) (*leftover, error) {
	o, err := parseObject(body)
	if err != nil {
		return nil, err
	}
	rest := o.without(reflect.TypeFor[T]())
	for name := range rest.fields {
		if strings.EqualFold(name, "v") || strings.EqualFold(name, "nonce") {
			delete(rest.fields, name)
		}
	}
	return rest, nil
}

// without drops the fields that t decodes.
func (o object) without(t reflect.Type) *leftover {
	rest := &leftover{fields: object{}, inner: map[string]*leftover{}}
	known, all := jsonFields(t)
	if all {
		return rest
	}
	for name, raw := range o {
		field, ok := known[strings.ToLower(name)] // encoding/json ignores case
		if !ok {
			rest.fields[name] = raw
			continue
		}
		if inside, err := parseObject(raw); err == nil {
			rest.inner[field.name] = inside.without(field.typ)
		}
	}
	return rest
}

// addTo puts the leftover beside freshly encoded fields, which win. Where the
// fresh record dropped a struct, what was unknown inside it goes too.
func (l *leftover) addTo(fresh object) error {
	if l == nil {
		return nil
	}
	for name, raw := range l.fields {
		if _, ok := fresh[name]; !ok {
			fresh[name] = raw
		}
	}
	for name, rest := range l.inner {
		if len(rest.fields) == 0 && len(rest.inner) == 0 {
			continue
		}
		inside, err := parseObject(fresh[name])
		if err != nil {
			continue // absent or null now
		}
		if err := rest.addTo(inside); err != nil {
			return err
		}
		if fresh[name], err = json.Marshal(inside); err != nil {
			return err
		}
	}
	return nil
}

type jsonField struct {
	name string
	typ  reflect.Type
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// jsonFields lists the fields that t decodes, by their names in lower case. all
// says that t takes the whole object.
func jsonFields(t reflect.Type) (known map[string]jsonField, all bool) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(unmarshaler) {
		return nil, true
	}
	known = map[string]jsonField{}
	for _, f := range reflect.VisibleFields(t) {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		embedded := f.Anonymous && tag == "" // its own fields are visible too
		if !f.IsExported() || tag == "-" || embedded {
			continue
		}
		if tag == "" {
			tag = f.Name
		}
		known[strings.ToLower(tag)] = jsonField{tag, f.Type}
	}
	return known, false
}
