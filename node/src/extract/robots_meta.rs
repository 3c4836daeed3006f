//! Page-level robots directives, from `<meta name=robots>` and `X-Robots-Tag`. Not robots.txt, and not the
//! `rel` of a single link.
//!
//! Source: the conventions that Google and Bing document; no standard exists. Directives from several places
//! add up: the stricter wins.

/// What a page asks of robots. The default is that all is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetaRobots {
    /// Do not index the page (`noindex`, `none`).
    pub noindex: bool,
    /// Do not follow any link of the page (`nofollow`, `none`).
    pub nofollow: bool,
    /// Keep no copy of the page (`noarchive`, `nocache`).
    pub noarchive: bool,
    /// Show no excerpt of the page (`nosnippet`).
    pub nosnippet: bool,
    /// Do not index images of the page (`noimageindex`).
    pub noimageindex: bool,
}

impl MetaRobots {
    /// Adds the directives of a meta element's `content`, in any case, separated by commas or white space.
    pub fn add_content(&mut self, content: &str) {
        for directive in content.split(|c: char| c == ',' || c.is_ascii_whitespace()) {
            self.add(directive);
        }
    }

    /// Adds one `X-Robots-Tag` field value for the crawler whose product token is `agent`. A user agent named
    /// before a directive (`otherbot: nofollow, noindex`) scopes the rest of the value, up to the next one
    /// named.
    pub fn add_header(&mut self, value: &str, agent: &str) {
        let mut ours = true;
        for item in value.split(',') {
            let mut item = item.trim();
            if let Some((name, rest)) = item.split_once(':') {
                let name = name.trim();
                // These directives have a colon of their own; all of them are no concern of a crawler.
                if ["unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"]
                    .iter()
                    .any(|valued| name.eq_ignore_ascii_case(valued))
                {
                    continue;
                }
                ours = name.eq_ignore_ascii_case(agent) || name.eq_ignore_ascii_case("robots") || name == "*";
                item = rest;
            }
            if ours {
                self.add_content(item);
            }
        }
    }

    /// What either asks for.
    pub fn union(self, other: MetaRobots) -> MetaRobots {
        MetaRobots {
            noindex: self.noindex || other.noindex,
            nofollow: self.nofollow || other.nofollow,
            noarchive: self.noarchive || other.noarchive,
            nosnippet: self.nosnippet || other.nosnippet,
            noimageindex: self.noimageindex || other.noimageindex,
        }
    }

    fn add(&mut self, directive: &str) {
        let is = |name: &str| directive.eq_ignore_ascii_case(name);
        let none = is("none");
        self.noindex |= none || is("noindex");
        self.nofollow |= none || is("nofollow");
        self.noarchive |= is("noarchive") || is("nocache");
        self.nosnippet |= is("nosnippet");
        self.noimageindex |= is("noimageindex");
    }
}
