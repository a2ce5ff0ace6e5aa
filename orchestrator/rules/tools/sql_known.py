"""Known parts of SQL syntax trees: those that only read, and the effects of the others.

Names are those of sqlglot's classes. Anything that is in none of these tables is refused.
"""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The action of a statement, by its node. A part of a statement has the same action.
ACTIONS = {
    "Select": "select",
    "Union": "select",
    "Intersect": "select",
    "Except": "select",
    "Values": "select",
    "Subquery": "select",
    "Insert": "insert",
    "Update": "update",
    "Delete": "delete",
    "TruncateTable": "truncate",
    "Create": "create",
    "Alter": "alter",
    "Drop": "drop",
    "Transaction": "transaction",
    "Commit": "transaction",
    "Rollback": "transaction",
    "Show": "show",
    "Describe": "show",
    "Use": "use",
}
# The members of those nodes with a known meaning. Other members that are set are refused, such as
# INTO, FOR UPDATE and OUTFILE.
_SET_OPERATION = frozenset({"with_", "this", "expression", "distinct", "order", "limit", "offset"})
MEMBERS = {
    "Select": frozenset(
        {"with_", "expressions", "distinct", "from_", "laterals", "joins", "where", "group"}
        | {"having", "windows", "order", "limit", "offset"}
    ),
    "Union": _SET_OPERATION,
    "Intersect": _SET_OPERATION,
    "Except": _SET_OPERATION,
    "Values": frozenset({"expressions", "alias", "order", "limit", "offset"}),
    "Subquery": frozenset({"this", "alias", "with_", "joins", "order", "limit", "offset"}),
    "Insert": frozenset({"with_", "this", "expression", "conflict", "returning", "default"}),
    "Update": frozenset(
        {"with_", "this", "expressions", "from_", "where", "returning", "order", "limit"}
    ),
    "Delete": frozenset({"with_", "this", "using", "where", "returning", "order", "limit"}),
    "TruncateTable": frozenset({"expressions", "exists", "only"}),
    "Create": frozenset({"this", "kind", "expression", "exists", "unique"}),
    "Alter": frozenset({"this", "kind", "actions", "exists", "only"}),
    "Drop": frozenset({"this", "kind", "tables", "expressions", "exists", "cascade", "restrict"}),
    "Transaction": frozenset[str](),
    "Commit": frozenset[str](),
    "Rollback": frozenset[str](),
    "Show": frozenset({"this", "target", "db", "full", "like"}),
    "Describe": frozenset({"this"}),
    "Use": frozenset({"this"}),
    "Table": frozenset({"this", "alias", "db", "catalog", "joins", "laterals", "only"}),
    "With": frozenset({"expressions", "recursive"}),
    "Returning": frozenset({"expressions"}),
}
# The objects of CREATE, ALTER and DROP. A function's body would not be checked.
KINDS = frozenset({"TABLE", "VIEW", "INDEX"})

# Syntax that only combines its parts.
SYNTAX = _names(
    """
    From Join Where Group Having Order Ordered Limit Offset Fetch Distinct With CTE Returning
    Column Identifier Table TableAlias Alias Star Var Schema Lateral Window WindowSpec Filter
    WithinGroup GroupingSets Cube Rollup OnConflict Dot Literal Boolean Null Tuple Paren
    Interval IntervalSpan DataType DataTypeParam Bracket Slice JSONPath JSONPathRoot JSONPathKey
    JSONPathSubscript EQ NEQ GT GTE LT LTE NullSafeEQ NullSafeNEQ Add Sub Mul Div IntDiv Mod
    DPipe Neg Not Is In Between Like ILike SimilarTo Escape Any All BitwiseAnd BitwiseOr
    BitwiseXor BitwiseNot BitwiseLeftShift BitwiseRightShift AtTimeZone Overlaps Glob ColumnDef
    ColumnConstraint PrimaryKey PrimaryKeyColumnConstraint NotNullColumnConstraint
    UniqueColumnConstraint DefaultColumnConstraint CheckColumnConstraint Constraint ForeignKey
    Reference AutoIncrementColumnConstraint Index IndexParameters AlterColumn AlterRename
    RenameColumn
"""
)

# Functions, and operators that sqlglot treats as functions, whose result depends only on their
# arguments, the time or the session.
HARMLESS = _names(
    """
    And Or Xor Case If Exists Cast TryCast Coalesce Nullif Greatest Least Collate Array Unnest
    Extract Typeof Uuid Rand Convert Count Sum Avg Min Max ArrayAgg GroupConcat JSONArrayAgg
    JSONObjectAgg JSONBObjectAgg LogicalAnd LogicalOr Stddev StddevPop StddevSamp Variance
    VariancePop Corr CovarPop CovarSamp PercentileCont PercentileDisc Mode Median AnyValue
    Grouping RowNumber Rank DenseRank PercentRank CumeDist Ntile Lag Lead FirstValue LastValue
    NthValue Abs Ceil Floor Round Trunc Sqrt Cbrt Pow Exp Ln Log Sign Pi Sin Cos Tan Cot Asin
    Acos Atan Atan2 Degrees Radians WidthBucket Lower Upper Initcap Length BitLength ByteLength
    Substring SubstringIndex Left Right Trim Pad Concat ConcatWs Repeat Replace Reverse
    StrPosition SplitPart Ascii Chr Unicode Hex Unhex MD5 SHA SHA2 RegexpLike RegexpILike
    RegexpReplace RegexpExtract RegexpExtractAll RegexpSplit RegexpSubstr RegexpInstr
    RegexpCount Translate Overlay StartsWith EndsWith Contains Format Elt Space ToChar ToNumber
    TimeToStr StrToTime StrToDate StrToUnix TimeToUnix UnixToTime UnixToStr CurrentDate
    CurrentTime CurrentTimestamp CurrentDatetime Localtime Localtimestamp UtcDate UtcTime
    UtcTimestamp CurrentUser SessionUser CurrentRole CurrentSchema CurrentDatabase
    CurrentCatalog CurrentVersion Date DateAdd DateSub DateDiff DateTrunc DateBin Datetime Time
    Timestamp TimestampAdd TimestampSub TimestampDiff TimestampTrunc TimeAdd TimeSub TimeDiff
    TimeTrunc TsOrDsToDate TsOrDsToTimestamp TsOrDsToTime TsOrDsAdd TsOrDsDiff LastDay Year
    Quarter Month Week WeekOfYear Day DayOfWeek DayOfMonth DayOfYear Hour Minute Second
    Monthname Dayname DateFromParts TimestampFromParts MakeInterval JustifyDays JustifyHours
    JustifyInterval GenerateSeries ExplodingGenerateSeries ArraySize ArrayContains
    ArrayContainsAll ArrayContainedBy ArrayOverlaps ArrayPosition ArrayAppend ArrayPrepend
    ArrayConcat ArrayRemove ArrayToString StringToArray ArrayLast JSONExtract JSONExtractScalar
    JSONBExtract JSONBExtractScalar JSONBContains JSONObject JSONArray JSONType JSONKeys JSONSet
    JSONRemove JSONStripNulls ParseJSON
"""
)
# Likewise, for functions that sqlglot knows by name only.
HARMLESS_NAMES = {
    "postgres": _names(
        """
        json_agg jsonb_agg json_build_object jsonb_build_object json_build_array
        jsonb_build_array json_array_length jsonb_array_length jsonb_typeof json_typeof
        jsonb_array_elements jsonb_array_elements_text json_array_elements
        json_array_elements_text jsonb_each jsonb_each_text jsonb_object_keys json_object_keys
        jsonb_pretty to_json to_jsonb row_to_json array_length array_upper array_lower
        cardinality every date_part age to_timestamp btrim char_length character_length
        octet_length regexp_match regexp_matches quote_literal quote_ident pg_typeof div
        clock_timestamp statement_timestamp transaction_timestamp timeofday isfinite make_date
        make_time make_timestamp make_timestamptz gcd lcm factorial scale to_date to_tsvector
        to_tsquery plainto_tsquery websearch_to_tsquery ts_rank pg_size_pretty version
        current_schemas
    """
    ),
    "mysql": _names(
        """
        char_length character_length octet_length unix_timestamp from_unixtime field find_in_set
        instr locate lcase ucase microsecond weekday yearweek makedate maketime period_add
        period_diff sec_to_time time_to_sec to_days from_days to_seconds truncate crc32 conv bin
        oct inet_aton inet_ntoa json_valid json_length json_contains json_unquote json_pretty
        isnull row_count found_rows connection_id last_insert_id rand log2 log10 std
    """
    ),
    "sqlite": _names(
        """
        total julianday strftime instr printf typeof changes total_changes last_insert_rowid
        likely unlikely quote zeroblob unixepoch json json_valid json_array_length json_quote
        json_each json_tree char hex log2 log10 sqlite_version
    """
    ),
}
# Names that have a class in sqlglot and are built into the database. Under sqlglot's other names, a
# database may have its own function. SQLite's functions belong to the program, never to a database.
BUILT_IN = {
    "postgres": _names(
        """
        abs acos any_value array array_agg array_append array_cat array_length array_position
        array_prepend array_remove array_to_string ascii asin atan atan2 avg bit_length bool_and
        bool_or btrim cast cbrt ceil ceiling char character_length char_length chr coalesce concat
        concat_ws convert corr cos cot count covar_pop covar_samp cume_dist current_catalog
        current_database current_date current_role current_schema current_time current_timestamp
        current_user date date_bin date_trunc degrees dense_rank div exists exp extract first_value
        floor format gen_random_uuid generate_series greatest grouping initcap json_extract_path
        json_extract_path_text json_object_agg json_strip_nulls json_object jsonb_object_agg
        justify_days justify_hours justify_interval lag last_value lead least left length like ln
        localtime localtimestamp log log10 lower lpad ltrim make_interval make_timestamp max md5
        min mod mode now nth_value ntile nullif overlay percent_rank percentile_cont
        percentile_disc pi power radians random rank regexp_count regexp_instr regexp_like
        regexp_replace regexp_substr repeat replace reverse right round row_number rpad rtrim
        session_user sign sin split_part position string_agg sqrt starts_with stddev stddev_pop
        stddev_samp string_to_array strpos substr substring sum tan time timestamp to_char to_date
        to_hex to_number to_timestamp translate trim trunc unnest upper var_pop var_samp variance
        version width_bucket
        """
    ),
    "mysql": _names(
        """
        abs acos any_value ascii asin atan atan2 avg bit_length cast ceil ceiling char
        character_length char_length coalesce convert concat concat_ws cos cot count cume_dist
        curdate current_date current_role current_time current_timestamp current_user curtime
        database date date_add date_format date_sub datediff day dayname dayofmonth dayofweek
        dayofyear degrees dense_rank div elt exists exp extract first_value floor format
        from_unixtime greatest group_concat grouping hex hour if ifnull instr isnull json_array
        json_arrayagg json_extract json_keys json_object json_objectagg json_remove json_set
        json_type lag last_day last_value lcase lead least left length like ln localtime
        localtimestamp locate log log10 log2 lower lpad ltrim max md5 min minute mod month
        monthname nth_value ntile nullif percent_rank pi position pow power quarter radians rand
        rank regexp_instr regexp_like regexp_replace regexp_substr repeat replace reverse right
        round row_number rpad rtrim schema second session_user sha sha1 sha2 sign sin space sqrt
        std stddev stddev_pop stddev_samp str_to_date substr substring substring_index sum tan time
        time_format timestamp timestampadd timestampdiff to_days trim truncate ucase unhex upper
        utc_date utc_time utc_timestamp uuid var_pop var_samp variance version week weekofyear xor
        year
        """
    ),
}
