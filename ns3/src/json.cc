#include "json.h"

#include <charconv>
#include <cstdio>
#include <cstring>

namespace peerloom
{

namespace
{

constexpr int kMaximumDepth = 16;

class Reader
{
  public:
    explicit Reader(const std::string& text)
        : m_text(text)
    {
    }

    Json Document()
    {
        Json json = Value(0);
        SkipBlank();
        if (m_at != m_text.size())
        {
            Fail("nothing more");
        }
        return json;
    }

  private:
    [[noreturn]] void Fail(const std::string& expected) const
    {
        throw BadJson("not JSON: expected " + expected + " at byte " + std::to_string(m_at));
    }

    void SkipBlank()
    {
        while (m_at < m_text.size() && std::strchr(" \t\r\n", m_text[m_at]) != nullptr)
        {
            ++m_at;
        }
    }

    bool Take(const std::string& token)
    {
        SkipBlank();
        if (m_text.compare(m_at, token.size(), token) != 0)
        {
            return false;
        }
        m_at += token.size();
        return true;
    }

    void Expect(const std::string& token)
    {
        if (!Take(token))
        {
            Fail("'" + token + "'");
        }
    }

    Json Value(int depth)
    {
        if (depth > kMaximumDepth)
        {
            Fail("less depth");
        }
        if (Take("{"))
        {
            return {Members(depth)};
        }
        if (Take("["))
        {
            return {Elements(depth)};
        }
        if (Take("\""))
        {
            return {String()};
        }
        if (Take("true"))
        {
            return {true};
        }
        if (Take("false"))
        {
            return {false};
        }
        return Take("null") ? Json{nullptr} : Json{Number()};
    }

    Json::Object Members(int depth)
    {
        Json::Object object;
        if (Take("}"))
        {
            return object;
        }
        do
        {
            Expect("\"");
            std::string name = String();
            Expect(":");
            if (!object.emplace(name, Value(depth + 1)).second)
            {
                Fail("each name once, but there is a second " + Quote(name));
            }
        } while (Take(","));
        Expect("}");
        return object;
    }

    Json::Array Elements(int depth)
    {
        Json::Array array;
        if (Take("]"))
        {
            return array;
        }
        do
        {
            array.push_back(Value(depth + 1));
        } while (Take(","));
        Expect("]");
        return array;
    }

    // After the opening quote.
    std::string String()
    {
        std::string string;
        while (m_at < m_text.size() && m_text[m_at] != '"')
        {
            char next = m_text[m_at++];
            if (static_cast<unsigned char>(next) < 0x20)
            {
                Fail("no control character");
            }
            string += next == '\\' ? Escape() : next;
        }
        if (m_at == m_text.size())
        {
            Fail("'\"'");
        }
        ++m_at;
        return string;
    }

    char Escape()
    {
        // \u is not among them: no name or value of the protocol needs it.
        static const char* const kinds = "\"\\/bfnrt";
        static const char* const meanings = "\"\\/\b\f\n\r\t";
        const char* kind = m_at < m_text.size() ? std::strchr(kinds, m_text[m_at]) : nullptr;
        if (kind == nullptr || *kind == '\0')
        {
            Fail("an escape of one character");
        }
        ++m_at;
        return meanings[kind - kinds];
    }

    double Number()
    {
        SkipBlank();
        const char* begin = m_text.data() + m_at;
        double number = 0;
        auto [rest, error] = std::from_chars(begin, m_text.data() + m_text.size(), number);
        // from_chars reads "inf" and "nan", which JSON does not have.
        if (error != std::errc() || std::strchr("-0123456789", *begin) == nullptr || begin[1] == 'i' ||
            begin[1] == 'n')
        {
            Fail("a value");
        }
        m_at += rest - begin;
        return number;
    }

    const std::string& m_text;
    size_t m_at = 0;
};

} // namespace

Json
ReadJson(const std::string& text)
{
    return Reader(text).Document();
}

std::string
Quote(const std::string& text)
{
    std::string quoted = "\"";
    for (unsigned char each : text)
    {
        if (each == '"' || each == '\\')
        {
            quoted += '\\';
        }
        if (each < 0x20 || each > 0x7e)
        {
            // Bytes that are no ASCII may be no UTF-8 either.
            char escaped[8];
            std::snprintf(escaped, sizeof escaped, "\\u%04x", each);
            quoted += escaped;
        }
        else
        {
            quoted += static_cast<char>(each);
        }
    }
    return quoted + "\"";
}

} // namespace peerloom
