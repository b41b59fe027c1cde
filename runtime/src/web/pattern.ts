// URLPattern of urlpattern-polyfill, which parses with the global URL when it is used.
export { URLPattern } from "urlpattern-polyfill/urlpattern";
