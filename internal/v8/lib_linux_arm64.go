package v8

import _ "github.com/tommie/v8go/deps/linux_arm64" // static libv8
