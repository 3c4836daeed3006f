//! `dolomedes cluster token …`: letting nodes join and programs in, and shutting them out again.

use anyhow::{Context as _, anyhow, bail};
use clap::Subcommand;
use data_encoding::HEXLOWER;
use dolomedes_netproto::wire::{Token, TokenKind, v1};
use serde_json::{Value, json};

use super::{Usage, to::To};

/// How long a join token lasts if nothing is said.
const JOIN_TTL_MS: u64 = 24 * 60 * 60 * 1_000;
/// Digits of a hash by which a token is called in lists.
const SHORT_ID: usize = 12;
/// Digits by which one may be named at least.
const LEAST_ID: usize = 4;

#[derive(Subcommand)]
pub(super) enum TokenCommand {
    /// Make an access token, or with --join one with which nodes join, and print it; it is shown this once
    Create {
        #[command(flatten)]
        to: To,
        /// For nodes to join, instead of for programs to use the cluster
        #[arg(long)]
        join: bool,
        /// How long it is good for, as in 90s, 30m, 24h, 7d; at most a year [default: 24h to join, else until it is revoked]
        #[arg(long, value_name = "TIME", value_parser = time)]
        ttl: Option<u64>,
        /// How many nodes may join with it [default: any number]
        #[arg(long, value_name = "N", requires = "join", value_parser = clap::value_parser!(u32).range(1..))]
        uses: Option<u32>,
        /// What it is for, to tell it from others
        #[arg(long, value_name = "TEXT", default_value = "")]
        label: String,
    },
    /// The tokens that are good, without their secrets
    List {
        #[command(flatten)]
        to: To,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Make a token good for nothing, within two seconds
    Revoke {
        #[command(flatten)]
        to: To,
        /// The token's id as in the list, or the beginning of it, or the token itself
        #[arg(value_name = "ID")]
        which: String,
    },
}

/// Carries a command out; returns what is to be printed.
pub(super) async fn carry_out(command: TokenCommand) -> anyhow::Result<String> {
    match command {
        TokenCommand::Create { to, join, ttl, uses, label } => create(&to, join, ttl, uses, label).await,
        TokenCommand::List { to, json } => {
            let mut tokens = to.client()?.list_tokens().await?;
            tokens.sort_by_key(|token| std::cmp::Reverse(token.age_ms));
            Ok(if json { as_json(&tokens).to_string() } else { as_text(&tokens) })
        }
        TokenCommand::Revoke { to, which } => {
            let client = to.client()?;
            let hash = match which.parse::<Token>() {
                Ok(token) => token.hash(),
                Err(_) => named(&client.list_tokens().await?, &which)?,
            };
            client.revoke_token(hash).await?;
            Ok(format!("token {} is revoked", short(&hash)))
        }
    }
}

async fn create(
    to: &To,
    join: bool,
    ttl: Option<u64>,
    uses: Option<u32>,
    label: String,
) -> anyhow::Result<String> {
    let (kind, wire_kind, ttl) = match join {
        true => (TokenKind::Join, v1::TokenKind::Join, Some(ttl.unwrap_or(JOIN_TTL_MS))),
        false => (TokenKind::Access, v1::TokenKind::Access, ttl),
    };
    let token = Token::draw(kind, to.ca()?).context("cannot draw a random number")?;
    let request = v1::CreateTokenRequest {
        hash: token.hash().to_vec().into(),
        kind: wire_kind as i32,
        label,
        ttl_ms: ttl.unwrap_or(0),
        uses: uses.unwrap_or(0),
    };
    to.client()?.create_token(request).await?;
    let lasts = ttl.map_or("until it is revoked".to_owned(), |ttl| format!("for {}", span(ttl)));
    let id = short(&token.hash());
    if join {
        let uses = uses.map_or(String::new(), |uses| format!(" and {uses} nodes"));
        eprintln!(
            "join token {id}, good {lasts}{uses}. On the new machine, with the token in place of TOKEN:"
        );
        eprintln!(
            "  dolomedes node --data-dir DIR --listen HOST:PORT --join {} --token TOKEN",
            to.members()?
        );
    } else {
        eprintln!("access token {id}, good {lasts}; give it as DOLOMEDES_TOKEN or with --token");
    }
    Ok(token.reveal())
}

/// The token that is named so.
fn named(tokens: &[v1::TokenInfo], name: &str) -> anyhow::Result<[u8; 32]> {
    let name = name.to_ascii_lowercase();
    if name.len() < LEAST_ID || name.bytes().any(|byte| !byte.is_ascii_hexdigit()) {
        return Err(Usage(anyhow!(
            "`{name}` is no token and no id of one; `dolomedes cluster token list` shows the ids"
        ))
        .into());
    }
    let mut found = tokens.iter().filter(|token| HEXLOWER.encode(&token.hash).starts_with(&name));
    match (found.next(), found.next()) {
        (Some(token), None) => {
            <[u8; 32]>::try_from(token.hash.as_ref()).ok().context("the cluster's answer makes no sense")
        }
        (None, _) => bail!("there is no token {name}; `dolomedes cluster token list` shows those there are"),
        (Some(_), Some(_)) => bail!("more than one token begins with {name}; name more of it"),
    }
}

fn short(hash: &[u8]) -> String {
    HEXLOWER.encode(hash).chars().take(SHORT_ID).collect()
}

fn kind(token: &v1::TokenInfo) -> &'static str {
    match token.kind() {
        v1::TokenKind::Join => "join",
        v1::TokenKind::Access => "access",
        v1::TokenKind::Unspecified => "unknown",
    }
}

fn as_json(tokens: &[v1::TokenInfo]) -> Value {
    let tokens: Vec<Value> = tokens
        .iter()
        .map(|token| {
            json!({
                "id": short(&token.hash),
                "kind": kind(token),
                "label": token.label,
                "age_ms": token.age_ms,
                "left_ms": token.left_ms,
                "uses_left": token.uses_left,
            })
        })
        .collect();
    json!({"tokens": tokens})
}

fn as_text(tokens: &[v1::TokenInfo]) -> String {
    let mut lines = vec![format!(
        "{:<width$}  {:<6}  {:<12}  {:<9}  label",
        "id",
        "kind",
        "good for",
        "uses left",
        width = SHORT_ID
    )];
    for token in tokens {
        lines.push(format!(
            "{}  {:<6}  {:<12}  {:<9}  {}",
            short(&token.hash),
            kind(token),
            token.left_ms.map_or("ever".to_owned(), span),
            token.uses_left.map_or("any".to_owned(), |uses| uses.to_string()),
            token.label,
        ));
    }
    lines.join("\n")
}

const UNITS: [(char, u64); 4] = [('d', 86_400_000), ('h', 3_600_000), ('m', 60_000), ('s', 1_000)];

/// Milliseconds of a time such as `24h`.
fn time(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no time: a number and s, m, h or d, as in 24h");
    let mut letters = text.chars();
    let unit = letters.next_back().ok_or_else(wrong)?;
    let (_, factor) = UNITS.into_iter().find(|(letter, _)| *letter == unit).ok_or_else(wrong)?;
    let number: u64 = letters.as_str().parse().map_err(|_| wrong())?;
    number.checked_mul(factor).filter(|ms| *ms > 0).ok_or_else(wrong)
}

/// The other way round, in the largest unit of which there are at least two, rounded down.
fn span(ms: u64) -> String {
    let unit = UNITS.into_iter().find(|(_, factor)| ms >= 2 * factor).unwrap_or(('s', 1_000));
    format!("{} {}", ms / unit.1, unit.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_told() {
        for (text, ms, told) in [
            ("1s", 1_000, "1 s"),
            ("90s", 90_000, "90 s"),
            ("30m", 1_800_000, "30 m"),
            ("24h", 86_400_000, "24 h"),
            ("7d", 604_800_000, "7 d"),
        ] {
            assert_eq!((time(text), span(ms)), (Ok(ms), told.to_owned()));
        }
        for text in ["", "h", "24", "0s", "-1h", "1w", "1.5h", "99999999999999999d", "ä"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_token_is_named_by_the_beginning_of_its_id() {
        let token = |first: u8| v1::TokenInfo { hash: vec![first; 32].into(), ..v1::TokenInfo::default() };
        let tokens = [token(0xab), token(0xac)];
        assert_eq!(named(&tokens, "ABAB").unwrap(), [0xab; 32]);
        for (name, says) in [("abc0", "no token"), ("ab", "no id"), ("xyzxyz", "no id"), ("", "no id")] {
            let error = named(&tokens, name).unwrap_err().to_string();
            assert!(error.contains(says), "{name}: {error}");
        }
        let twins = [token(0xab), token(0xab)];
        assert!(named(&twins, "abab").unwrap_err().to_string().contains("more than one"));
    }
}
