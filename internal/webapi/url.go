package webapi

import (
	"github.com/nlnwa/whatwg-url/url"

	"celld/internal/hostcall"
)

var urlOps = []hostcall.Op{
	{Name: "url.parse", Sync: parseURL},
	{Name: "url.set", Sync: setURL},
}

// urls follows the standard of today, which encodes "^" in paths.
var urls = url.NewParser(url.WithPathPercentEncodeSet(url.PathPercentEncodeSet.Set('^')))

// parseURL (input, base?) gives the serialization, or null when it is no URL.
func parseURL(f hostcall.Frame) error {
	var u *url.Url
	var err error
	if f.Arg(1).IsUndefined() {
		u, err = urls.Parse(f.Arg(0).Str())
	} else {
		u, err = urls.ParseRef(f.Arg(1).Str(), f.Arg(0).Str())
	}
	if err != nil {
		f.SetNull()
		return nil
	}
	f.SetStr(u.Href(false))
	return nil
}

// setters of a URL's attributes, by name.
var setters = map[string]func(*url.Url, string){
	"protocol": (*url.Url).SetProtocol,
	"username": (*url.Url).SetUsername,
	"password": (*url.Url).SetPassword,
	"host":     (*url.Url).SetHost,
	"hostname": (*url.Url).SetHostname,
	"port":     (*url.Url).SetPort,
	"pathname": (*url.Url).SetPathname,
	"search":   (*url.Url).SetSearch,
	"hash":     (*url.Url).SetHash,
}

// setURL (href, attribute, value) gives the new serialization, which is the old
// one when the value is not acceptable.
func setURL(f hostcall.Frame) error {
	href := f.Arg(0).Str()
	u, err := urls.Parse(href)
	if err != nil {
		return err
	}
	setters[f.Arg(1).Str()](u, f.Arg(2).Str())
	f.SetStr(u.Href(false))
	return nil
}
