#pragma once

// Reads one JSON value (RFC 8259) and writes strings: all that the control protocol needs.

#include <map>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

namespace peerloom
{

struct BadJson : std::runtime_error
{
    using std::runtime_error::runtime_error;
};

struct Json
{
    using Array = std::vector<Json>;
    using Object = std::map<std::string, Json>;

    std::variant<std::nullptr_t, bool, double, std::string, Array, Object> value = nullptr;
};

// Throws BadJson, which names the place.
Json ReadJson(const std::string& text);

// The string in quotes.
std::string Quote(const std::string& text);

} // namespace peerloom
